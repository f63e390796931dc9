"""Reads manifests, ours or of another scheduler, and the machine's settings; says where the store is.

- `--store` and `$DETENT_STORE` win over a manifest's store, that over the machine's, that over the
  default: a SQLite file in the state directory.
- The machine's settings stand in `/etc/detent/detent.yaml`, or where `$DETENT_CONFIG` says.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from detent.errors import UsageError
from detent.manifest.check import Machine, Manifest, ManifestError, check_machine, check_manifest
from detent.text import listed

if TYPE_CHECKING:
    from pathlib import Path

    from detent.loading.foreign import Source
    from detent.runners.call.store import NodeStore

MACHINE_FILE = "/etc/detent/detent.yaml"
MANIFEST_NAMES = ("detent.yaml", "detent.yml", "detent.toml", "detent.json")
DATABASE = "detent.db"
EMPTY_STORE = (
    'is empty: name a store, as "sqlite:////var/lib/detent/detent.db" or "redis://HOST", '
    "or leave it out to use the usual one"
)
ROOT_STATE = "/var/lib/detent"


def find_manifest(given: str | os.PathLike[str] | None = None) -> Path:
    """The file that was given, or the manifest in the working directory."""
    from pathlib import Path  # late, here and below: a trigger has no time for it

    if given:
        return given if isinstance(given, Path) else Path(given)  # which may be one of crontabs
    found = next((Path(name) for name in MANIFEST_NAMES if Path(name).is_file()), None)
    if found is None:
        raise UsageError(f"no manifest here: there is no {listed(MANIFEST_NAMES)}; name the manifest with -f")
    return found


def load_manifest(path: str | os.PathLike[str], env: Mapping[str, str]) -> Manifest:
    """The manifest in a file, with the machine's settings under its own."""
    from pathlib import Path

    from detent.loading.foreign import read_source  # late: a trigger does without other schedulers' files

    machine = load_machine(env)
    try:
        source = read_source(path if isinstance(path, Path) else Path(path), env)
    except ManifestError as error:
        raise ManifestError(error.problems, error.file or str(path)) from None
    return check_source(source, str(path), env, machine)


def check_source(source: Source, name: str, env: Mapping[str, str], machine: Machine) -> Manifest:
    """The manifest of a document that came from a file or an address of this name."""
    try:
        manifest = check_manifest(
            source.document, lines=source.lines, variables=env, machine=machine, jobs_min=source.jobs_min
        )
    except ManifestError as error:
        found = source.locate(error)
        raise ManifestError(found.problems, found.file or name) from None
    return manifest._replace(warnings=source.warnings + manifest.warnings)


def load_machine(env: Mapping[str, str]) -> Machine:
    """The settings of this machine; none where there is no such file."""
    named = env.get("DETENT_CONFIG", "")
    path = named or MACHINE_FILE
    if not named and not os.path.isfile(path):
        return Machine()
    from pathlib import Path

    from detent.loading.files import read_document

    document, lines = read_document(Path(path))
    try:
        return check_machine(document, lines=lines, variables=env)
    except ManifestError as error:
        raise ManifestError(error.problems, path) from None


def store_url(manifest: Manifest | None, flag: str | None, env: Mapping[str, str]) -> str:
    """The URL of the store to use.  A manifest from `load_manifest` holds the machine's store already."""
    if said := explicit_store(flag, env):
        return said
    settled = manifest.store.url if manifest else load_machine(env).store.get("url", "")
    return settled or f"sqlite:///{state_path(env)}/{DATABASE}"


def explicit_store(flag: str | None, env: Mapping[str, str]) -> str:
    """The store that `--store` or `$DETENT_STORE` names; "": neither is given.  An empty value is refused:
    with a variable that is not set, each host of a fleet would get a store of its own."""
    for name, said in (("--store", flag), ("DETENT_STORE", env.get("DETENT_STORE"))):
        if said is not None and not said.strip():
            raise UsageError(f"{name} {EMPTY_STORE}")
        if said:
            return said
    return ""


def store_options(manifest: Manifest | None, env: Mapping[str, str]) -> dict[str, Any]:
    """What else is to be told to a store that hosts share: see `stores.opening.open_store`."""
    try:
        said = manifest.store._asdict() if manifest else load_machine(env).store
    except UsageError:  # a broken file must not keep anybody from a store that is named otherwise
        return {}
    return {name: said[name] for name in ("key_prefix", "wait_replicas") if name in said}


def call_store(manifest: Manifest, flag: str | None, env: Mapping[str, str]) -> NodeStore:
    """The store that a node uses, as its calls are told of it: the same one from whatever directory."""
    url, machine = store_url(manifest, flag, env), load_machine(env)
    is_declared = url == manifest.store.url != machine.store.get("url", "")
    names = {name: env[name] for name in ("DETENT_STORE", "DETENT_CONFIG") if env.get(name)}
    if "DETENT_CONFIG" in names:
        names["DETENT_CONFIG"] = os.path.abspath(names["DETENT_CONFIG"])
    if path := url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else "":
        url = f"sqlite:///{os.path.abspath(path)}"
    from detent.runners.call.store import NodeStore  # late: most verbs run nothing

    return NodeStore(manifest.app, url, store_options(manifest, env), names, is_declared)


def state_directory(env: Mapping[str, str]) -> Path:
    """Where this user's nodes keep what must outlive them."""
    from pathlib import Path

    return Path(state_path(env))


def state_path(env: Mapping[str, str]) -> str:
    """As `state_directory`, for who has no time for a Path."""
    state = env.get("XDG_STATE_HOME", "")
    if state.startswith("/"):  # one that is not absolute is to be ignored, says the XDG specification
        return f"{state.rstrip('/')}/detent"
    if os.geteuid() == 0:
        return ROOT_STATE
    return f"{os.path.expanduser(env.get('HOME') or '~')}/.local/state/detent"


def nodes_directory(url: str, env: Mapping[str, str]) -> Path:
    """Where the nodes of this host that share a store find each other's locks."""
    from pathlib import Path

    if url.startswith("sqlite:"):
        return Path(url.removeprefix("sqlite:///") + ".nodes")
    return state_directory(env) / "nodes"
