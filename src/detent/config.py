"""Reads files: manifests in YAML, TOML or JSON, the machine's settings, and where the store is.

- `--store` and `$DETENT_STORE` win over a manifest's store, that over the machine's, that over the
  default: a SQLite file in the state directory.
- The machine's settings stand in `/etc/detent/detent.yaml`, or where `$DETENT_CONFIG` says.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from detent.core.manifest import Machine, Manifest, ManifestError, check_machine, check_manifest
from detent.core.text import listed, plural, quote
from detent.documents import Lines, parse_json, parse_toml, parse_yaml, refusal
from detent.errors import UsageError

FILE_MAX = 128 * 2**20  # bytes; a hundred thousand jobs have about a quarter of it
MACHINE_FILE = "/etc/detent/detent.yaml"
MANIFEST_NAMES = ("detent.yaml", "detent.yml", "detent.toml", "detent.json")
DATABASE = "detent.db"
ROOT_STATE = "/var/lib/detent"

_PARSERS: dict[str, Callable[[str], tuple[Any, Lines]]] = {
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".toml": parse_toml,
    ".json": parse_json,
}


def find_manifest(given: str | os.PathLike[str] | None = None) -> Path:
    """The file that was given, or the manifest in the working directory."""
    if given:
        return Path(given)
    found = next((Path(name) for name in MANIFEST_NAMES if Path(name).is_file()), None)
    if found is None:
        raise UsageError(f"no manifest here: there is no {listed(MANIFEST_NAMES)}; name the file to use")
    return found


def read_document(path: str | os.PathLike[str]) -> tuple[Any, Mapping[str, int]]:
    """The document in a file, and the line of each of its paths."""
    file = Path(path)
    parse = _PARSERS.get(file.suffix.lower())
    if parse is None:
        raise UsageError(f"cannot read {quote(str(path))}: its name ends in none of {listed([*_PARSERS])}")
    content = _read(file)
    try:
        return parse(_decode(content))
    except ManifestError as error:
        raise ManifestError(error.problems, str(path)) from None


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(FILE_MAX + 1)
    except OSError as error:
        raise UsageError(f"cannot read {quote(str(file))}: {_why(error)}") from None
    if len(content) > FILE_MAX:
        raise UsageError(f"cannot read {quote(str(file))}: it has more than {plural(FILE_MAX, 'byte')}")
    return content


def _why(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        raise refusal("this is not UTF-8 text; save the file as UTF-8", line, column) from None


def load_manifest(path: str | os.PathLike[str], env: Mapping[str, str]) -> Manifest:
    """The manifest in a file, with the machine's settings under its own."""
    machine = load_machine(env)
    document, lines = read_document(path)
    try:
        return check_manifest(document, lines=lines, variables=env, machine=machine)
    except ManifestError as error:
        raise ManifestError(error.problems, str(path)) from None


def load_machine(env: Mapping[str, str]) -> Machine:
    """The settings of this machine; none where there is no such file."""
    named = env.get("DETENT_CONFIG", "")
    path = Path(named or MACHINE_FILE)
    if not named and not path.is_file():
        return Machine()
    document, lines = read_document(path)
    try:
        return check_machine(document, lines=lines, variables=env)
    except ManifestError as error:
        raise ManifestError(error.problems, str(path)) from None


def store_url(manifest: Manifest | None, flag: str | None, env: Mapping[str, str]) -> str:
    """The URL of the store to use.  A manifest from `load_manifest` holds the machine's store already."""
    said = flag or env.get("DETENT_STORE")
    if said:
        return said
    settled = manifest.store.url if manifest else load_machine(env).store.get("url", "")
    return settled or f"sqlite:///{state_directory(env) / DATABASE}"


def state_directory(env: Mapping[str, str]) -> Path:
    """Where this user's nodes keep what must outlive them."""
    state = env.get("XDG_STATE_HOME", "")
    if state.startswith("/"):  # one that is not absolute is to be ignored, says the XDG specification
        return Path(state) / "detent"
    if os.geteuid() == 0:
        return Path(ROOT_STATE)
    return Path(env.get("HOME") or "~").expanduser() / ".local/state/detent"


def nodes_directory(url: str, env: Mapping[str, str]) -> Path:
    """Where the nodes of this host that share a store find each other's locks."""
    if url.startswith("sqlite:"):
        return Path(url.removeprefix("sqlite:///") + ".nodes")
    return state_directory(env) / "nodes"
