"""The architecture as a test: who may import whom, how long things may be, what only one file may do."""

import ast
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "detent"
FILE_MAX, FUNCTION_MAX, PARAMETERS_MAX = 500, 60, 5
LAYERS = (  # a package may import itself and those before it in this list
    *("model", "errors", "clock", "text", "events"),
    *("rules", "schedules", "manifest", "messages", "formats"),
    *("stores", "runners", "hosts"),
    *("warden", "worker", "node", "trigger"),
    *("loading", "observe", "app"),
    *("receive", "testing", "views", "dashboard", "cli"),
    *("__init__", "__main__"),
)
FAMILIES = {  # folders whose members do not import each other, but for what they share
    "formats": {"base", "cloud_schedules"},
    "stores": {"base", "encoding", "paging", "search", "registry", "engine", "sql"},
    "runners": {"lifeline", "running", "command", "secrets"},
    "hosts": {"base", "remote", "spec_folder", "reconcile", "adoption", "registry"},
}
ENTRIES_MAX = 25  # of a folder
PURE = {
    "model",
    "errors",
    "text",
    "events",
    "rules",
    "schedules",
    "manifest",
    "messages",
    "formats",
}
IMPURE_MODULES = {
    "time",
    "random",
    "os",
    "sys",
    "socket",
    "subprocess",
    "threading",
    "asyncio",
    "pathlib",
    "io",
}
ONLY_IN = {  # a call -> the only files that may make it; the warden is a program of its own
    "time.time": ("clock.py",),
    "time.monotonic": ("clock.py", "warden/program/"),
    "time.clock_gettime": ("clock.py", "warden/program/"),
    "time.sleep": ("warden/program/",),
    "datetime.now": ("clock.py",),
    "datetime.utcnow": (),
    "random.random": (),
    "uuid.uuid4": (),
    "print": ("cli/", "testing/sim/campaign.py"),
}

LOOKS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split", "find"}
PATTERNS = {"match", "fullmatch", "search", "findall", "split", "sub"}


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def layer(part: str) -> int:
    return LAYERS.index(part) if part in LAYERS else -1


def imports(tree: ast.AST) -> Iterator[str]:
    """Modules of ours that are imported, below `detent`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "detent":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("detent."):
            yield (node.module or "").removeprefix("detent.")
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("detent.") for a in node.names if a.name.startswith("detent."))


def misplaced_imports(path: Path, tree: ast.AST) -> Iterator[str]:
    name = name_of(path)
    parts = name.removesuffix(".py").split("/")
    if layer(parts[0]) < 0:
        yield f"{name} has no place in LAYERS"
    for module in imports(tree):
        target = module.split(".")
        if target[0].startswith("__") or target[0][0].isupper():  # the version, or a public name
            continue
        if layer(target[0]) < 0:
            yield f"{name} imports {module}, which has no place in LAYERS"
        if layer(target[0]) > layer(parts[0]):
            yield f"{name} imports {module}, which lies above it"
        if parts[0] in FAMILIES and target[0] == parts[0] and len(target) > 1:
            shared = FAMILIES[parts[0]]
            if target[1] not in shared | {parts[1]} and parts[1] != "registry":
                yield f"{name} imports its sibling {module}"


def long_things(path: Path, tree: ast.AST) -> Iterator[str]:
    lines = len(path.read_text().splitlines())
    if lines > FILE_MAX:
        yield f"{name_of(path)}: {lines} lines"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_MAX:
                yield f"{name_of(path)}: {node.name} has {length} lines"
            given = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
            if len(given) > PARAMETERS_MAX:
                yield f"{name_of(path)}: {node.name} has {len(given)} parameters"


def forbidden_calls(path: Path, tree: ast.AST) -> Iterator[str]:
    name = name_of(path)
    for node in ast.walk(tree):
        call = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if call in ONLY_IN and not any(allowed in name for allowed in ONLY_IN[call]):
            yield f"{name}:{getattr(node, 'lineno', 0)}: {call}() is not for this file"


def impurities(path: Path, tree: ast.AST) -> Iterator[str]:
    name = name_of(path)
    if name.split("/")[0].removesuffix(".py") not in PURE:
        return
    for node in ast.walk(tree):
        modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            modules = [f"{node.module}.{a.name}" for a in node.names]
        for module in modules:
            top = module.split(".")[0]
            if top in IMPURE_MODULES and module != "random.Random":
                yield f"{name} is pure, and imports {module}"
            if top not in sys.stdlib_module_names and top != "detent":
                yield f"{name} is pure, and imports the third party {module}"


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the top-level package of each absolute import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]


def private_imports(path: Path, tree: ast.AST) -> Iterator[str]:
    for package in imported(tree):
        if package.startswith("_") and package != "__future__":
            yield f"{name_of(path)} imports {package}, which is private to the standard library"


def warden_imports(path: Path, tree: ast.AST) -> Iterator[str]:
    if "warden/program/" not in name_of(path):
        return
    for package in imported(tree):
        if package not in sys.stdlib_module_names:
            yield f"{name_of(path)} imports {package}: the warden has the standard library and itself only"


def undocumented(path: Path, tree: ast.Module) -> Iterator[str]:
    if path.read_text().strip() and not ast.get_docstring(tree):
        yield f"{name_of(path)} does not say what it is for"


def looks_into_reasons(path: Path, tree: ast.AST) -> Iterator[str]:
    """Comparisons, string methods and patterns on `x.reason` or `reason`."""
    name = name_of(path)
    for node in ast.walk(tree):
        if any(map(_is_reason, _looked_into(node))):
            yield f"{name}:{getattr(node, 'lineno', 0)} looks into the text of a reason: read the cause"


def _looked_into(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Call(func=ast.Attribute(value=text, attr=attr), args=args):
            return ([text] if attr in LOOKS else []) + (args if attr in PATTERNS else [])
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Subscript(value=text):
            return [text]
    return []


def _is_reason(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node).split(".")[-1] == "reason"


@cache
def trees() -> dict[Path, ast.Module]:
    """Read where they are asked for: every process of the tests imports this file."""
    return {path: ast.parse(path.read_text()) for path in sources()}


def problems(check: Callable[[Path, ast.Module], Iterator[str]]) -> list[str]:
    return [problem for path, tree in trees().items() for problem in check(path, tree)]


def test_a_folder_has_no_more_entries_than_a_reader_takes_in() -> None:
    for folder in {path.parent for path in sources()}:
        entries = [
            one for one in folder.iterdir() if one.suffix != ".typed" and not one.name.startswith("__")
        ]
        assert len(entries) <= ENTRIES_MAX, name_of(folder)


def test_imports_point_downwards_only() -> None:
    assert problems(misplaced_imports) == []


def test_files_and_functions_can_be_read_in_a_sitting() -> None:
    assert problems(long_things) == []


def test_time_chance_and_output_are_in_their_places_only() -> None:
    assert problems(forbidden_calls) == []


def test_the_core_is_pure() -> None:
    assert problems(impurities) == []


def test_no_private_module_of_the_standard_library_is_imported() -> None:
    assert problems(private_imports) == []


def test_the_warden_imports_only_the_standard_library_and_itself() -> None:
    assert problems(warden_imports) == []


def test_every_file_says_what_it_is_for() -> None:
    assert problems(undocumented) == []


def test_no_code_looks_into_the_text_of_a_reason() -> None:
    assert problems(looks_into_reasons) == []


@pytest.mark.parametrize(
    "code",
    [
        "outcome.reason.startswith('paused')",
        "'paused' in row.outcome.reason",
        "stop.reason == 'shutdown'",
        "re.match('by (.*)', outcome.reason)",
        "_WAITS.fullmatch(reason)",
        "reason.removeprefix('by ')",
        "outcome.reason[3:]",
    ],
)
def test_code_that_looks_into_a_reason_is_found(code: str) -> None:
    assert [*looks_into_reasons(ROOT / "x.py", ast.parse(code))]
