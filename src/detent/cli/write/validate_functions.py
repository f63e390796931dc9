"""Finds out whether the function of a `call` is there and can be called, without importing anything of it.

A module may bind a name in ways that only running it shows: then we say nothing.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from detent.text import did_you_mean, quote

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SOURCE_MAX = 4 << 20  # bytes; a longer module is not looked into


def missing_part(function: str, folders: Sequence[str]) -> str:
    """What of `package.module:function` is not there; nothing: an empty text.  The folders come first."""
    module, _, name = function.partition(":")
    if module.partition(".")[0] in sys.builtin_module_names:
        return ""
    found = _spec_of(module, folders)
    if isinstance(found, str):
        return f"there is no module {quote(found)} here"
    return _missing_name(found, module, name.partition(".")[0])


def is_generator_function(function: str, folders: Sequence[str]) -> bool:
    """Does its source say that a call of it makes a generator, and runs nothing?"""
    module, _, name = function.partition(":")
    found = _spec_of(module, folders)
    tree = None if isinstance(found, str) else _tree_of(found.origin or "")
    defined = [one for one in (tree.body if tree else ()) if getattr(one, "name", "") == name]
    return bool(defined) and isinstance(defined[-1], _FUNCTIONS) and _yields(defined[-1])


def _spec_of(module: str, folders: Sequence[str]) -> ModuleSpec | str:
    """The module or, where it is not there, the name of the part that is missing."""
    search = [*(folder for folder in folders if folder), *sys.path]
    spec: ModuleSpec | None = None
    for part in _growing(module):
        places = search if spec is None else spec.submodule_search_locations
        spec = PathFinder.find_spec(part, places) if places else None
        if spec is None:
            return part
    return spec or module


def _growing(module: str) -> Iterator[str]:
    """`a.b.c`: `a`, `a.b`, `a.b.c`."""
    parts = module.split(".")
    return (".".join(parts[: i + 1]) for i in range(len(parts)))


def _missing_name(spec: ModuleSpec, module: str, name: str) -> str:
    names = _bound_names(spec.origin or "")
    if not names or name in names or names & {"*", "__getattr__", "globals", "setattr"}:
        return ""
    return f"the module {quote(module)} has no {quote(name)}{did_you_mean(name, names)}"


def _bound_names(origin: str) -> set[str]:
    """Every name that the module's source mentions where it could bind one; none where it cannot be read."""
    tree = _tree_of(origin)
    return {name for node in ast.walk(tree) for name in _names_of(node)} if tree else set()


def _tree_of(origin: str) -> ast.Module | None:
    """None: it is no Python source that can be read."""
    file = Path(origin)
    try:
        if file.suffix != ".py" or file.stat().st_size > SOURCE_MAX:
            return None
        return ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return None


def _yields(node: ast.AST) -> bool:
    """In its own body, and not in that of a function within."""
    inner = [one for one in ast.iter_child_nodes(node) if not isinstance(one, (*_FUNCTIONS, ast.Lambda))]
    return any(isinstance(one, ast.Yield | ast.YieldFrom) or _yields(one) for one in inner)


def _names_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name):
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.partition(".")[0]
