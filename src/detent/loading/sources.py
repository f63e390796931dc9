"""Reads manifests from a file, a directory, an app in code (`module:name`), or the URL of an app.

- Each file of a directory (`.yaml`, `.yml`, `.toml`, `.json`, not hidden) is a manifest.  Files of one app
  form one manifest: their jobs in the order of the file names, `defaults` per file, and `store`, `node` and
  `secrets` shared by all.  Contradicting settings and different versions are refused.
- `--secret-ref` signs the requests of all jobs that have no secret of their own.
- A URL is fetched by a signed GET over https; plain http is for this host only.  The manifest must have
  version 1, so that a remote app can cause requests, but never run commands here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.loading.config import check_source, find_manifest, load_machine
from detent.loading.documents import parse_json
from detent.loading.files import PARSERS
from detent.loading.foreign import CrontabPath, Source
from detent.loading.foreign import read_source as read_file
from detent.loading.module_app import is_app, load_app
from detent.manifest.check import Machine, Manifest, check_machine
from detent.manifest.problems import ManifestError, Problem
from detent.text import listed, plural, quote

FETCH_S = 10.0  # for the whole download, including the DNS lookup
FETCH_MAX = 8 * 2**20  # bytes; 256 jobs need far less
FILES_MAX = 1000
DASHBOARD = "dashboard_url"
SETTINGS = ("store", "node", "secrets", DASHBOARD)
_URL = re.compile("https?://", re.IGNORECASE)
_HERE = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1", re.IGNORECASE)

Place = str | os.PathLike[str]  # a file, a directory, an app in code or a URL


class _Part(NamedTuple):
    name: str
    source: Source
    manifest: Manifest


def find_place(given: Place | None = None) -> Place:
    return given if given and (is_url(given) or is_app(given)) else find_manifest(given)


def read_manifest(place: Place, env: Mapping[str, str], secret_ref: str = "") -> Manifest:
    manifests = read_manifests(place, env, secret_ref)
    if len(manifests) > 1:
        apps = listed([manifest.app for manifest in manifests], "and")
        raise UsageError(f"{quote(str(place))} has several apps ({apps}): name a file of one app")
    return manifests[0]


def read_manifests(place: Place, env: Mapping[str, str], secret_ref: str = "") -> tuple[Manifest, ...]:
    """Return the manifests of a source, one per app, sorted by app."""
    apps: dict[str, list[_Part]] = {}
    machine = load_machine(env)
    for one in manifest_places(place):
        source = read_source(one, env, secret_ref)
        part = _Part(str(one), source, check_source(source, str(one), env, machine))
        apps.setdefault(part.manifest.app, []).append(part)
    return tuple(_manifest(apps[app], env, machine) for app in sorted(apps))


def read_once(place: str, env: Mapping[str, str]) -> Callable[[], Manifest]:
    """Load an app in code or standard input, which a node cannot reload."""
    return single_use(read_manifest(place, env), place)


def single_use(manifest: Manifest, place: str) -> Callable[[], Manifest]:
    """Return a loader that returns the manifest once, and then refuses."""
    left = [manifest]

    def load() -> Manifest:
        if not left:
            what = "standard input" if place == "-" else "code"
            raise UsageError(f"the jobs of {place} come from {what}, which is read once: restart the node")
        return left.pop()

    return load


def read_source(place: Place, env: Mapping[str, str], secret_ref: str = "") -> Source:
    """Return the document of one file, app or URL.  `secret_ref` signs the GET, and the requests of jobs
    without a secret."""
    if is_url(place):
        source = _fetch(str(place), env, secret_ref)
    elif is_app(place):
        source = load_app(str(place)).source()
    else:
        source = read_file(place if isinstance(place, Path) else Path(place), env)
    return source._replace(document=_signed(source.document, secret_ref)) if secret_ref else source


def _signed(document: Any, secret_ref: str) -> Any:
    """Add the secret to each request that has none.  The document is not checked yet."""
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        return document
    defaults = document.get("defaults")
    has_default = isinstance(defaults, dict) and defaults.get("auth")
    jobs = [job if has_default else _signed_job(job, secret_ref) for job in document["jobs"]]
    return {**document, "jobs": jobs}


def _signed_job(job: Any, secret_ref: str) -> Any:
    if not isinstance(job, dict) or "request" not in job:
        return job
    auth = job.get("auth", {})
    is_unsigned = isinstance(auth, dict) and auth.get("secret_refs", []) == []
    return {**job, "auth": {**auth, "secret_refs": [secret_ref]}} if is_unsigned else job


def manifest_places(place: Place) -> tuple[Place, ...]:
    """Return the files of a directory, or the place itself."""
    if is_url(place) or is_app(place) or not _is_folder(place):
        return (place,)
    found = sorted(one for one in Path(place).iterdir() if _is_manifest(one))
    if not found:
        raise UsageError(f"no manifest in {quote(str(place))}: no file name ends in {listed([*PARSERS])}")
    if len(found) > FILES_MAX:
        raise UsageError(
            f"{quote(str(place))} has {plural(len(found), 'file')}; at most {FILES_MAX} are allowed"
        )
    return tuple(found)


def is_url(place: Place) -> bool:
    return isinstance(place, str) and _URL.match(place) is not None


def _is_folder(place: Place) -> bool:
    path = Path(place)
    return path.is_dir() and not isinstance(place, CrontabPath) and path.name != "cron.d"


def _is_manifest(path: Path) -> bool:
    return path.suffix.lower() in PARSERS and not path.name.startswith(".") and path.is_file()


def _manifest(parts: Sequence[_Part], env: Mapping[str, str], machine: Machine) -> Manifest:
    if len(parts) == 1:
        return parts[0].manifest
    settings = _shared(parts, env)
    over = Machine(
        store={**machine.store, **settings.store},
        node={**machine.node, **settings.node},
        secrets={**machine.secrets, **settings.secrets},
        dashboard_url=settings.dashboard_url or machine.dashboard_url,
    )
    return _joined([(part.name, check_source(part.source, part.name, env, over)) for part in parts])


def _shared(parts: Sequence[_Part], env: Mapping[str, str]) -> Machine:
    """Return the settings of all files together."""
    shared: dict[str, dict[str, Any]] = {name: {} for name in SETTINGS}
    origin: dict[tuple[str, str], str] = {}
    for name, source, _ in parts:
        own = {setting: source.document[setting] for setting in SETTINGS if setting in source.document}
        checked = check_machine(own, variables=env)._asdict()
        checked[DASHBOARD] = {DASHBOARD: checked[DASHBOARD]} if checked[DASHBOARD] else {}
        for setting, fields in checked.items():
            for field, value in fields.items():
                if shared[setting].setdefault(field, value) != value:
                    path = setting if setting == DASHBOARD else f"{setting}/{field}"
                    message = f"the value differs from {origin[setting, field]}, a file of the same app,"
                    raise ManifestError([Problem(path, message, advice="keep one")], name)
                origin.setdefault((setting, field), name)
    url = str(shared.pop(DASHBOARD).get(DASHBOARD, ""))
    return Machine(shared["store"], shared["node"], shared["secrets"], url)


def _joined(named: Sequence[tuple[str, Manifest]]) -> Manifest:
    (first, whole), *rest = named
    owner = dict.fromkeys(whole.canonical, first)
    for name, part in rest:
        if part.version != whole.version:
            message = f"{first}, a file of the same app, has version {whole.version}, not {part.version},"
            raise ManifestError([Problem("version", message, advice="use one version")], name)
        for job in part.canonical:
            if owner.setdefault(job, name) != name:
                message = f"the job {job} is also in {owner[job]}"
                raise ManifestError([Problem("jobs", message, advice="names are unique in an app")], name)
        whole = whole._replace(
            jobs=whole.jobs + part.jobs,
            disabled=whole.disabled + part.disabled,
            everywhere=whole.everywhere | part.everywhere,
            canonical={**whole.canonical, **part.canonical},
            machine={**whole.machine, **part.machine},
            warnings=whole.warnings + part.warnings,
        )
    return whole


def _fetch(url: str, env: Mapping[str, str], secret_ref: str) -> Source:
    from detent.runners.http.get import fetch
    from detent.runners.http.request import parse_url

    endpoint = parse_url(url)
    if not endpoint.secure and not _HERE.fullmatch(endpoint.host):
        raise UsageError(f"{endpoint.place}: plain http is for this host only; use https")
    content = fetch(url, _secret(secret_ref, env), timeout_s=FETCH_S, size_max=FETCH_MAX)
    place = re.sub(r"//[^/?#]*@", "//", url)  # without a password
    try:
        document, lines = parse_json(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise ManifestError([Problem(path="", message="the answer is not UTF-8 text")], place) from None
    except ManifestError as error:
        raise ManifestError(error.problems, place) from None
    if isinstance(document, dict) and document.get("version", 1) != 1:
        message = "an app serves version 1 only: commands and calls are not accepted from the network"
        raise ManifestError([Problem("version", message)], place)
    return Source(document, lines)


def _secret(ref: str, env: Mapping[str, str]) -> Any:
    from detent.runners.secrets import resolve

    if not ref:
        return None
    found = resolve([ref], load_machine(env).secrets, env)
    if not found.secrets:
        raise UsageError(f"--secret-ref: {found.warnings[0]}; no request was sent")
    return found.secrets[0]
