"""Loads manifests and the machine's settings, and chooses the store.

The store is the first of these that is set: `--store`, `$DETENT_STORE`, the manifest's, the machine's, and a
SQLite file in the state directory.  The machine's settings are in `/etc/detent/detent.yaml`, or in the file
that `$DETENT_CONFIG` names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from detent.errors import UsageError
from detent.manifest.check import Machine, Manifest, check_machine, check_manifest
from detent.manifest.problems import ManifestError
from detent.text import listed

if TYPE_CHECKING:
    from pathlib import Path

    from detent.loading.foreign import Source
    from detent.runners.call.store import NodeStore

MACHINE_FILE = "/etc/detent/detent.yaml"
MANIFEST_NAMES = ("detent.yaml", "detent.yml", "detent.toml", "detent.json")
DATABASE = "detent.db"
EMPTY_STORE = (
    'is empty: name a store, such as "sqlite:////var/lib/detent/detent.db" or "redis://HOST", '
    "or leave it out to use the default store"
)
ROOT_STATE = "/var/lib/detent"


def find_manifest(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the given file, or the manifest in the working directory."""
    from pathlib import Path  # late, here and below: it slows the start of a trigger

    if given:
        return given if isinstance(given, Path) else Path(given)  # a CrontabPath stays one
    found = next((Path(name) for name in MANIFEST_NAMES if Path(name).is_file()), None)
    if found is None:
        raise UsageError(f"no manifest here: there is no {listed(MANIFEST_NAMES)}; name the manifest with -f")
    return found


def load_manifest(path: str | os.PathLike[str], env: Mapping[str, str]) -> Manifest:
    from pathlib import Path

    from detent.loading.foreign import read_source  # late: it slows the start of a trigger

    machine = load_machine(env)
    try:
        source = read_source(path if isinstance(path, Path) else Path(path), env)
    except ManifestError as error:
        raise ManifestError(error.problems, error.file or str(path)) from None
    return check_source(source, str(path), env, machine)


def check_source(source: Source, name: str, env: Mapping[str, str], machine: Machine) -> Manifest:
    """Check a document.  `name` is the file or URL that it comes from."""
    try:
        manifest = check_manifest(
            source.document, lines=source.lines, variables=env, machine=machine, jobs_min=source.jobs_min
        )
    except ManifestError as error:
        found = source.locate(error)
        raise ManifestError(found.problems, found.file or name) from None
    return manifest._replace(warnings=source.warnings + manifest.warnings)


def load_machine(env: Mapping[str, str]) -> Machine:
    """Return the settings of this machine; empty if there is no such file."""
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
    """Return the URL of the store to use.  A loaded manifest includes the machine's store."""
    if url := explicit_store(flag, env):
        return url
    url = manifest.store.url if manifest else load_machine(env).store.get("url", "")
    return url or f"sqlite:///{state_path(env)}/{DATABASE}"


def explicit_store(flag: str | None, env: Mapping[str, str]) -> str:
    """Return the store that `--store` or `$DETENT_STORE` names, or an empty text if neither is given.

    An empty value usually comes from an unset variable, and would give each host of a fleet its own store:
    it is refused.
    """
    for name, url in (("--store", flag), ("DETENT_STORE", env.get("DETENT_STORE"))):
        if url is not None and not url.strip():
            raise UsageError(f"{name} {EMPTY_STORE}")
        if url:
            return url
    return ""


def store_options(manifest: Manifest | None, env: Mapping[str, str]) -> dict[str, Any]:
    """Return further options of a shared store: see `stores.opening.open_store`."""
    try:
        settings = manifest.store._asdict() if manifest else load_machine(env).store
    except UsageError:  # a broken machine file must not block a store that is named in another way
        return {}
    return {name: settings[name] for name in ("key_prefix", "wait_replicas") if name in settings}


def call_store(manifest: Manifest, flag: str | None, env: Mapping[str, str]) -> NodeStore:
    """Return the node's store for its calls, with absolute paths: a call may run in another directory."""
    url, machine = store_url(manifest, flag, env), load_machine(env)
    is_declared = url == manifest.store.url != machine.store.get("url", "")
    names = {name: env[name] for name in ("DETENT_STORE", "DETENT_CONFIG") if env.get(name)}
    if "DETENT_CONFIG" in names:
        names["DETENT_CONFIG"] = os.path.abspath(names["DETENT_CONFIG"])
    if path := url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else "":
        url = f"sqlite:///{os.path.abspath(path)}"
    from detent.runners.call.store import NodeStore  # late: most verbs run no job

    return NodeStore(manifest.app, url, store_options(manifest, env), names, is_declared)


def state_directory(env: Mapping[str, str]) -> Path:
    """Return the directory in which this user's nodes keep their state."""
    from pathlib import Path

    return Path(state_path(env))


def state_path(env: Mapping[str, str]) -> str:
    """Return `state_directory` as a text, without importing pathlib."""
    state = env.get("XDG_STATE_HOME", "")
    if state.startswith("/"):  # the XDG specification says to ignore a relative path
        return f"{state.rstrip('/')}/detent"
    if os.geteuid() == 0:
        return ROOT_STATE
    return f"{os.path.expanduser(env.get('HOME') or '~')}/.local/state/detent"


def nodes_directory(url: str, env: Mapping[str, str]) -> Path:
    """Return the directory of the lock files of this host's nodes that share a store."""
    from pathlib import Path

    if url.startswith("sqlite:"):
        return Path(url.removeprefix("sqlite:///") + ".nodes")
    return state_directory(env) / "nodes"
