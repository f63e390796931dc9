"""A shorter way to the package's own compiled modules, for a process that ends after one fire.

The usual way looks at folders, names and kinds of files anew for each module, and takes longer than most of
them do.  Here a module is where its name says; whatever is not as expected (not compiled, compiled by another
Python, older than its source) is left to the usual way.
"""

from __future__ import annotations

import marshal
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader

from detent.values import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType

PACKAGE = "detent."
FOLDER = __file__.rpartition("/cli/")[0]
HEADER = (
    16  # bytes: of which Python it is, how it is checked, when its source was written, and how long that is
)
BY_TIME = b"\0\0\0\0"
TAG = sys.implementation.cache_tag
READ_MAX = 1 << 16  # what is longer is left to the usual way: so much memory takes no page of its own


def take() -> None:
    """From now on.  Dates, too, are those of the C code at once, as Python has it since 3.12."""
    if sys.version_info < (3, 12):
        import _datetime  # type: ignore[import-not-found]

        sys.modules.setdefault("datetime", _datetime)
    if not sys.flags.optimize and not sys.pycache_prefix:
        sys.meta_path.insert(0, Shortcut)


class Loader(SourceFileLoader):
    """The usual one, with the code at hand."""

    code: CodeType | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        return self.code or super().get_code(fullname)


class Shortcut:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if not name.startswith(PACKAGE):
            return None
        place = FOLDER + "/" + name[len(PACKAGE) :].replace(".", "/")
        folder, _, stem = place.rpartition("/")
        return _spec(name, folder, stem, is_package=False) or _spec(name, place, "__init__", is_package=True)


def _spec(name: str, folder: str, stem: str, is_package: bool) -> ModuleSpec | None:
    source, compiled = (
        f"{folder}/{stem}.py",
        f"{folder}/__pycache__/{stem}.{sys.implementation.cache_tag}.pyc",
    )
    try:
        data, written = _read(compiled), os.stat(source)
    except OSError:
        return None
    age = (int(written.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
    size = (written.st_size & 0xFFFFFFFF).to_bytes(4, "little")
    if data[:HEADER] != MAGIC_NUMBER + BY_TIME + age + size or len(data) == READ_MAX:
        return None
    loader = Loader(name, source)
    loader.code = marshal.loads(memoryview(data)[HEADER:])
    spec = ModuleSpec(name, loader, origin=source, is_package=is_package)
    spec.has_location, spec.cached = True, compiled
    if spec.submodule_search_locations is not None:
        spec.submodule_search_locations.append(folder)
    return spec


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, READ_MAX)
    finally:
        os.close(fd)
