"""Where manifests come from: a file, a directory of files, an app in code (`module:name`), or the address at
which an app serves its own.

- A directory's files (`.yaml`, `.yml`, `.toml`, `.json`, none hidden, no folders below) are each a manifest
  of their own.  Files of one app are one manifest together: their jobs in the order of the files' names,
  each file's `defaults` for its own jobs only, and `store`, `node` and `secrets` of one file for them all.
  What two files say otherwise of the same is refused, and so are two versions in one app.
- A secret that is given along (`--secret-ref`) signs the requests of all jobs that name none of their own.
- An app is asked by a signed GET over https; plain http is for this host only.  What it serves is version
  1: whoever answers at an address may have requests sent, but no commands run here.
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

FETCH_S = 10.0  # from the look-up of the name to the last byte
FETCH_MAX = 8 * 2**20  # bytes; 256 jobs have far less
FILES_MAX = 1000
SETTINGS = ("store", "node", "secrets")
_URL = re.compile("https?://", re.IGNORECASE)
_HERE = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1", re.IGNORECASE)

Place = str | os.PathLike[str]  # a file, a directory, an app in code or a URL


class _Part(NamedTuple):
    """One document of a source, checked for itself."""

    name: str
    source: Source
    manifest: Manifest


def find_place(given: Place | None = None) -> Place:
    """What was given, or the manifest in the working directory."""
    return given if given and (is_url(given) or is_app(given)) else find_manifest(given)


def read_manifest(place: Place, env: Mapping[str, str], secret_ref: str = "") -> Manifest:
    """The one manifest of a source."""
    manifests = read_manifests(place, env, secret_ref)
    if len(manifests) > 1:
        apps = listed([manifest.app for manifest in manifests], "and")
        raise UsageError(f"{quote(str(place))} holds the apps {apps}: name a file of one of them")
    return manifests[0]


def read_manifests(place: Place, env: Mapping[str, str], secret_ref: str = "") -> tuple[Manifest, ...]:
    """The manifests of a source, one for each app, by the apps' names."""
    apps: dict[str, list[_Part]] = {}
    machine = load_machine(env)
    for one in manifest_places(place):
        source = read_source(one, env, secret_ref)
        part = _Part(str(one), source, check_source(source, str(one), env, machine))
        apps.setdefault(part.manifest.app, []).append(part)
    return tuple(_manifest(apps[app], env, machine) for app in sorted(apps))


def read_once(place: str, env: Mapping[str, str]) -> Callable[[], Manifest]:
    """For an app in code and for standard input, which do not change while a node runs."""
    return single_use(read_manifest(place, env), place)


def single_use(manifest: Manifest, place: str) -> Callable[[], Manifest]:
    """Gives the manifest, and refuses to read it again."""
    left = [manifest]

    def load() -> Manifest:
        if not left:
            what = "standard input" if place == "-" else "code"
            raise UsageError(f"the jobs of {place} are {what}, which is read once: restart the node")
        return left.pop()

    return load


def read_source(place: Place, env: Mapping[str, str], secret_ref: str = "") -> Source:
    """The document in one file, or at one address.  `secret_ref` signs what is asked of an address, and the
    requests of jobs that name no secret."""
    if is_url(place):
        source = _fetch(str(place), env, secret_ref)
    elif is_app(place):
        source = load_app(str(place)).source()
    else:
        source = read_file(place if isinstance(place, Path) else Path(place), env)
    return source._replace(document=_signed(source.document, secret_ref)) if secret_ref else source


def _signed(document: Any, secret_ref: str) -> Any:
    """The document with this secret for each request without one.  It is not checked yet."""
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
    """The files of a directory; anything else is one place."""
    if is_url(place) or is_app(place) or not _is_folder(place):
        return (place,)
    found = sorted(one for one in Path(place).iterdir() if _is_manifest(one))
    if not found:
        raise UsageError(f"no manifest in {quote(str(place))}: no name there ends in {listed([*PARSERS])}")
    if len(found) > FILES_MAX:
        raise UsageError(f"{quote(str(place))} holds {plural(len(found), 'file')}: at most {FILES_MAX}")
    return tuple(found)


def is_url(place: Place) -> bool:
    return isinstance(place, str) and _URL.match(place) is not None


def _is_folder(place: Place) -> bool:
    """A folder of crontabs is read by who reads those."""
    path = Path(place)
    return path.is_dir() and not isinstance(place, CrontabPath) and path.name != "cron.d"


def _is_manifest(path: Path) -> bool:
    return path.suffix.lower() in PARSERS and not path.name.startswith(".") and path.is_file()


# Several files of one app.


def _manifest(parts: Sequence[_Part], env: Mapping[str, str], machine: Machine) -> Manifest:
    if len(parts) == 1:
        return parts[0].manifest
    settings = _shared(parts, env)
    over = Machine(*({**under, **own} for under, own in zip(machine, settings, strict=True)))
    return _joined([(part.name, check_source(part.source, part.name, env, over)) for part in parts])


def _shared(parts: Sequence[_Part], env: Mapping[str, str]) -> Machine:
    """What any of the files says of the store, the node and the secrets."""
    shared: dict[str, dict[str, Any]] = {name: {} for name in SETTINGS}
    said_in: dict[tuple[str, str], str] = {}
    for name, source, _ in parts:
        said = {setting: source.document[setting] for setting in SETTINGS if setting in source.document}
        for setting, fields in check_machine(said, variables=env)._asdict().items():
            for field, value in fields.items():
                if shared[setting].setdefault(field, value) != value:
                    first = said_in[setting, field]
                    told = f"{first} says otherwise, and both files are of one app: leave one out"
                    raise ManifestError([Problem(path=f"{setting}/{field}", message=told)], name)
                said_in.setdefault((setting, field), name)
    return Machine(**shared)


def _joined(named: Sequence[tuple[str, Manifest]]) -> Manifest:
    (first, whole), *rest = named
    owner = dict.fromkeys(whole.canonical, first)
    for name, part in rest:
        if part.version != whole.version:
            told = f"{first} is of the same app and of version {whole.version}: write the same in both"
            raise ManifestError([Problem(path="version", message=told)], name)
        for job in part.canonical:
            if owner.setdefault(job, name) != name:
                told = f"{job} is in {owner[job]} as well: names are unique in an app"
                raise ManifestError([Problem(path="jobs", message=told)], name)
        whole = whole._replace(
            jobs=whole.jobs + part.jobs,
            disabled=whole.disabled + part.disabled,
            everywhere=whole.everywhere | part.everywhere,
            canonical={**whole.canonical, **part.canonical},
            machine={**whole.machine, **part.machine},
            warnings=whole.warnings + part.warnings,
        )
    return whole


# An app that serves its manifest.


def _fetch(url: str, env: Mapping[str, str], secret_ref: str) -> Source:
    from detent.runners.http.get import fetch
    from detent.runners.http.request import parse_url

    endpoint = parse_url(url)
    if not endpoint.secure and not _HERE.fullmatch(endpoint.host):
        raise UsageError(f"{endpoint.place} is asked over plain http, which is for this host only: use https")
    content = fetch(url, _secret(secret_ref, env), timeout_s=FETCH_S, size_max=FETCH_MAX)
    place = _place(url)
    try:
        document, lines = parse_json(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise ManifestError([Problem(path="", message="the answer is not UTF-8 text")], place) from None
    except ManifestError as error:
        raise ManifestError(error.problems, place) from None
    if isinstance(document, dict) and document.get("version", 1) != 1:
        told = "what an app serves is version 1: commands and calls are not taken from the network"
        raise ManifestError([Problem(path="version", message=told)], place)
    return Source(document, lines)


def _place(url: str) -> str:
    """The URL, as messages may name it."""
    return re.sub(r"//[^/?#]*@", "//", url)


def _secret(ref: str, env: Mapping[str, str]) -> Any:
    from detent.runners.secrets import resolve

    if not ref:
        return None
    found = resolve([ref], load_machine(env).secrets, env)
    if not found.secrets:
        raise UsageError(f"--secret-ref: {found.warnings[0]}; nothing was asked")
    return found.secrets[0]
