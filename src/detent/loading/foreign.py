"""Recognises files of other schedulers by their content, and converts them to version 2 manifests.

The converters are pure: this module reads what they need from this machine, such as its time zone and the
home directories.  `/etc/crontab` and the files of `cron.d` have a user column, and the files of cron's spool
have none.  For another crontab, `system:FILE` or `user:FILE` says it; otherwise it is guessed, with a
warning.
"""

import pwd
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PosixPath
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.formats.base import FOREIGN, Converted, LocalContext, app_name
from detent.formats.cronlock.convert import convert_cronlock, is_cronlock
from detent.formats.crontab.convert import Form, guess_form, looks_like_crontab
from detent.formats.crontab.jobs import File, convert_crontabs
from detent.loading.files import PARSERS, STDIN, read_document, read_text
from detent.manifest.problems import ManifestError, Problem
from detent.schedules.zones import open_zone
from detent.text import listed, quote

LOCALTIME, TIMEZONE = Path("/etc/localtime"), Path("/etc/timezone")
_PLAIN_UTC = dict.fromkeys(("Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu"), "UTC")
ANSWER_S = 0.5  # timeout of the check for a Redis on this host
FORMS: dict[str, Form] = {"user:": "user", "system:": "system"}

DOCUMENTS = (".yaml", ".yml", ".json")
UNITS = (".timer", ".service")

_DOCUMENT = re.compile(
    r"^(?:---|\.\.\.)(?=\s|$)", re.MULTILINE
)  # always a document marker at the start of a line
_CRON_D_NAME = re.compile(r"[A-Za-z0-9_-]+")  # cron ignores other names, such as foo.bak


class CrontabPath(PosixPath):
    """A path given with --crontab: a crontab whatever its name, or several that are joined by commas."""

    def parts_of(self) -> list[tuple[Path, Form | None]]:
        """Return the files and folders, each with its explicit form."""
        texts = [str(self)] if self.exists() else [text.strip() for text in str(self).split(",")]
        forms = [next((one for one in FORMS if text.startswith(one)), "") for text in texts]
        return [
            (Path(text.removeprefix(form)), FORMS.get(form)) for text, form in zip(texts, forms, strict=True)
        ]


class FileKind(NamedTuple):
    matches: Callable[[Path], bool]
    convert: Callable[[Path, Mapping[str, str]], Converted]  # takes the file and the environment


class Source(NamedTuple):
    """The document of a manifest, perhaps converted from a foreign file."""

    document: Any
    lines: Mapping[str, int]
    warnings: tuple[Problem, ...] = ()
    locate: Callable[[ManifestError], ManifestError] = lambda error: error  # adds the files of problems
    jobs_min: int = 1  # 0 for an app in code that only has tasks


def read_source(path: Path, env: Mapping[str, str]) -> Source:
    """Read a file, and convert it if it belongs to another scheduler."""
    if _is_crontab(path):
        converted = _crontab(path, env)
        return Source(converted.document, converted.lines, converted.warnings)
    if path.suffix in UNITS:
        raise _only_converted(path, "a systemd unit")
    try:
        document, lines = read_document(path)
    except ManifestError:
        if _is_kubernetes(path):  # such a file may have several documents
            raise _only_converted(path, "a Kubernetes object") from None
        raise
    if _is_object(document):
        raise _only_converted(path, "a Kubernetes object")
    if is_cronlock(document, path.name):
        converted = _convert_cronlock(path, document, lines, env)
        return Source(converted.document, converted.lines, converted.warnings)
    return Source(document, lines)


def _only_converted(path: Path, what: str) -> UsageError:
    advice = f"convert it with `detent convert {path} > detent.yaml`"
    return UsageError(f"{quote(str(path))} is {what}, which detent cannot run directly; {advice}")


def source_files(path: Path) -> tuple[Path, ...]:
    return tuple(part for part, _ in path.parts_of()) if isinstance(path, CrontabPath) else (path,)


def convert_file(path: Path, env: Mapping[str, str], more: Sequence[str] = ()) -> Converted:
    """Convert a foreign file to a version 2 manifest; `more` are further systemd units."""
    if more and not _is_systemd(path):
        raise UsageError(f"only systemd units can be converted together; remove {quote(more[0])}")
    if more:
        return convert_units([path, *map(Path, more)], env)
    kind = next((kind for kind in KINDS.values() if kind.matches(path)), None)
    if kind is None:
        raise UsageError(f"cannot convert {quote(str(path))}: it is not a {listed([*KINDS])} file")
    try:
        return kind.convert(path, env)
    except ManifestError as error:
        raise ManifestError(error.problems, error.file or str(path)) from None


def _is_cronlock(path: Path) -> bool:
    if path.suffix.lower() not in PARSERS and path != STDIN:
        return False
    try:
        return is_cronlock(read_document(path)[0], path.name)
    except ManifestError:  # not readable as a document: it may be of another kind
        return False


def _convert_cronlock(
    path: Path, document: Any, lines: Mapping[str, int], env: Mapping[str, str]
) -> Converted:
    timezone, warnings = local_timezone(env)
    here = LocalContext(timezone, app_name(path.stem), variables=env, answers=_is_redis)
    converted = convert_cronlock(document, lines, here)
    return converted._replace(warnings=warnings + converted.warnings)


def _is_redis(address: str) -> bool:
    """Whether a Redis of this host answers at the address, also if it requires a password."""
    host, _, port = address.rpartition(":") if ":" in address else (address, "", "6379")
    try:
        with socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), ANSWER_S) as link:
            link.settimeout(ANSWER_S)
            link.sendall(b"PING\r\n")
            return link.recv(7).startswith((b"+PONG", b"-NOAUTH"))
    except (OSError, ValueError):
        return False


def _is_crontab(path: Path) -> bool:
    if isinstance(path, CrontabPath) or path.is_dir():
        return isinstance(path, CrontabPath) or path.name == "cron.d"
    if path.suffix.lower() in PARSERS or not (path.is_file() or path == STDIN):
        return False
    try:
        return looks_like_crontab(read_text(path))
    except ManifestError:  # not a text
        return False


def _crontab(path: Path, env: Mapping[str, str]) -> Converted:
    parts = (path if isinstance(path, CrontabPath) else CrontabPath(path)).parts_of()
    found = [(file, form) for part, form in parts for file in crontabs_in(part)]
    is_one = len(parts) == 1 and not parts[0][0].is_dir()
    warnings, files = [*_ignored_files(parts)], list[File]()
    for file, explicit in found:
        text, name = read_text(file), "" if is_one else str(file)
        form, doubt = (explicit, "") if explicit else form_of(file, text)
        files.append(File(text, form, name))
        warnings += [Problem("", doubt, code=FOREIGN, file=name)] if doubt else []
    timezone, zone_warnings = local_timezone(env)
    converted = convert_crontabs(files, LocalContext(timezone, _crontab_app(parts), _homes(env)))
    return converted._replace(warnings=(*zone_warnings, *warnings, *converted.warnings))


def _crontab_app(parts: Sequence[tuple[Path, Form | None]]) -> str:
    """Name the app after the user of a crontab in cron's spool, else after the first file or folder."""
    first = parts[0][0].absolute()
    return app_name(f"crontab-{first.name}" if "spool" in first.parts else first.name)


def crontabs_in(path: Path) -> list[Path]:
    """Return the file, or the files of a folder that cron reads."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.is_file() and _CRON_D_NAME.fullmatch(file.name))


def _ignored_files(parts: list[tuple[Path, Form | None]]) -> Iterator[Problem]:
    for folder in (part for part, _ in parts if part.is_dir()):
        names = [file.name for file in sorted(folder.iterdir()) if not _CRON_D_NAME.fullmatch(file.name)]
        for name in (name for name in names if not name.startswith(".")):
            message = "this file is ignored: cron reads no file with such a name; rename it to use it"
            yield Problem("", message, code=FOREIGN, file=str(folder / name))


def form_of(file: Path, text: str) -> tuple[Form, str]:
    """Return the form of a crontab, and a warning if it was guessed."""
    place = file.absolute()
    if place.parent.name == "cron.d" or str(place) == "/etc/crontab":
        return "system", ""
    if "spool" in place.parts:
        return "user", ""
    return guess_form(text, {entry.pw_name for entry in pwd.getpwall()})


def _homes(env: Mapping[str, str]) -> dict[str, str]:
    """Return the home directory of each user.  As in cron, a missing home is replaced by the root."""
    homes = {entry.pw_name: entry.pw_dir for entry in pwd.getpwall()}
    homes[""] = env.get("HOME", "")
    return {user: home if Path(home).is_dir() else "/" for user, home in homes.items() if home}


def _is_kubernetes(path: Path) -> bool:
    if path.suffix.lower() not in DOCUMENTS or not path.is_file():
        return False
    try:
        return any(_is_object(document) for document in read_documents(path)[0])
    except ManifestError:
        return False


def _is_object(document: Any) -> bool:
    return isinstance(document, dict) and "apiVersion" in document and "kind" in document


def _kubernetes(path: Path, env: Mapping[str, str]) -> Converted:
    from detent.formats.kubernetes.convert import convert_kubernetes  # late: rarely needed

    return convert_kubernetes(*read_documents(path), app_name(path.stem))


def read_documents(path: Path) -> tuple[list[Any], dict[str, int]]:
    """Return all documents of a file, and their lines by `number of the document/path`."""
    text, parse = read_text(path), PARSERS[path.suffix.lower()]
    starts = [match.start() for match in _DOCUMENT.finditer(text)] if parse is not PARSERS[".json"] else []
    documents, lines = [], {}
    for number, (start, end) in enumerate(zip([0, *starts], [*starts, len(text)], strict=True)):
        before = text.count("\n", 0, start)
        try:
            document, own = parse(_DOCUMENT.sub("", text[start:end]))
        except ManifestError as error:
            moved = [one._replace(line=one.line + before) if one.line else one for one in error.problems]
            raise ManifestError(moved, str(path)) from None
        documents.append(document)
        lines[str(number)] = before + 1
        lines.update((f"{number}/{inner}", line + before) for inner, line in own.items())
    return documents, lines


def _is_systemd(path: Path) -> bool:
    if path.is_dir():
        return any(path.glob("*.timer"))
    return path.suffix in UNITS


def convert_units(paths: Sequence[Path], env: Mapping[str, str]) -> Converted:
    """Convert the timers in these files and folders, with the services next to them."""
    from detent.formats.systemd.convert import convert_systemd  # late: rarely needed

    files: list[Path] = []
    for path in paths:
        timers = [file for file in path.glob("*.timer") if file.is_file()] if path.is_dir() else [path]
        files += sorted(timers)
    texts: dict[str, str] = {}
    for file in files:
        for unit in [file, *_services_beside(file)]:
            if unit.name not in texts and (unit.is_file() or unit == file):
                texts[unit.name] = read_text(unit)
                drop_ins = sorted(unit.with_name(f"{unit.name}.d").glob("*.conf"))
                texts.update((f"{unit.name}.d/{drop.name}", read_text(drop)) for drop in drop_ins)
    timezone, warnings = local_timezone(env)
    converted = convert_systemd(texts, timezone, app_name(paths[0].stem))
    return converted._replace(warnings=warnings + converted.warnings)


def _services_beside(file: Path) -> list[Path]:
    from detent.formats.systemd.convert import services_of  # late: rarely needed
    from detent.formats.systemd.units import parse_unit

    if file.suffix != ".timer" or not file.is_file():
        return []
    return [file.with_name(name) for name in services_of(parse_unit(file.name, read_text(file)))]


def local_timezone(env: Mapping[str, str]) -> tuple[str, tuple[Problem, ...]]:
    """Return the IANA name of this machine's time zone; if it is unknown, UTC and a warning."""
    names = [env.get("TZ", "").removeprefix(":")]
    with suppress(OSError):
        names.append(str(LOCALTIME.resolve()).partition("/zoneinfo/")[2])
    with suppress(OSError, ValueError):
        names.append(TIMEZONE.read_text().partition("\n")[0].strip())
    for name in filter(None, names):
        with suppress(UsageError):
            open_zone(name)
            return _PLAIN_UTC.get(name, name), ()
    message = "the time zone of this machine is unknown: schedules are in UTC; set TZ, like TZ=Europe/Berlin"
    return "UTC", (Problem(path="", message=message, code=FOREIGN),)


KINDS: dict[str, FileKind] = {  # tried in this order
    "cronlock": FileKind(_is_cronlock, lambda path, env: _convert_cronlock(path, *read_document(path), env)),
    "crontab": FileKind(_is_crontab, _crontab),
    "Kubernetes": FileKind(_is_kubernetes, _kubernetes),
    "systemd": FileKind(_is_systemd, lambda path, env: convert_units([path], env)),
}
