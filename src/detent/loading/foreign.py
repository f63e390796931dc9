"""Files of other schedulers: which kind one is, and what it says as a version 2 manifest.

- `KINDS` is the table: how a kind is recognised, how it is converted, and whether `detent run` takes it
  as it is.  A file is recognised by its content; `--crontab` says so outright.
- Here is the I/O: what a converter needs of this machine (its time zone, the homes of its users) is read
  here and given to it.
- A crontab's form is known by where it stands (`/etc/crontab`, a `cron.d`: with a user; a spool of
  crontabs: without), or is said (`system:FILE`, `user:FILE`), or is guessed, with a warning.
"""

import pwd
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PosixPath
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.formats.base import FOREIGN, Converted, app_name
from detent.formats.cronlock.convert import LocalContext as CronlockContext
from detent.formats.cronlock.convert import convert_cronlock, is_cronlock
from detent.formats.crontab.convert import Form, guess_form, looks_like_crontab
from detent.formats.crontab.jobs import File, LocalContext, convert_crontabs
from detent.loading.files import PARSERS, STDIN, read_document, read_text
from detent.manifest.problems import ManifestError, Problem
from detent.schedules.zones import open_zone
from detent.text import listed, quote

LOCALTIME, TIMEZONE = Path("/etc/localtime"), Path("/etc/timezone")
_PLAIN_UTC = dict.fromkeys(("Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu"), "UTC")
ANSWER_S = 0.5  # within which a Redis of this host answers
FORMS: dict[str, Form] = {"user:": "user", "system:": "system"}

DOCUMENTS = (".yaml", ".yml", ".json")
UNITS = (".timer", ".service")

_DOCUMENT = re.compile(r"^(?:---|\.\.\.)(?=\s|$)", re.MULTILINE)  # at the start of a line it is always a mark
_CRON_D_NAME = re.compile(r"[A-Za-z0-9_-]+")  # cron reads no others: foo.bak, foo.dpkg-old


class CrontabPath(PosixPath):
    """Crontabs that are to be read as such, whatever their names; several are joined by commas."""

    def parts_of(self) -> list[tuple[Path, Form | None]]:
        """The files and folders, with the form that was said."""
        texts = [str(self)] if self.exists() else str(self).split(",")
        return [_said(text.strip()) for text in texts]


def _said(text: str) -> tuple[Path, Form | None]:
    for prefix, form in FORMS.items():
        if text.startswith(prefix):
            return Path(text.removeprefix(prefix)), form
    return Path(text), None


class FileKind(NamedTuple):
    """A kind of foreign file."""

    matches: Callable[[Path], bool]
    convert: Callable[[Path, Mapping[str, str]], Converted]  # the file and the environment
    is_runnable: bool = False  # every verb takes it as it is; else it is only converted


class Source(NamedTuple):
    """A manifest's document, from a file of ours or from a foreign one."""

    document: Any
    lines: Mapping[str, int]
    warnings: tuple[Problem, ...] = ()
    locate: Callable[[ManifestError], ManifestError] = lambda error: error  # where it is of several files
    jobs_min: int = 1  # jobs: an app in code may have tasks only


def read_source(path: Path, env: Mapping[str, str]) -> Source:
    """The manifest in a file, converted where it is another scheduler's."""
    if _is_crontab(path):
        return _source(KINDS["crontab"].convert(path, env))
    if path.suffix in UNITS:
        raise _only_converted(path, "a unit of systemd")
    try:
        document, lines = read_document(path)
    except ManifestError:
        if _is_kubernetes(path):  # these may hold several documents
            raise _only_converted(path, "of Kubernetes") from None
        raise
    if _is_object(document):
        raise _only_converted(path, "of Kubernetes")
    if is_cronlock(document, path.name):
        return _source(_convert_cronlock(path, document, lines, env))
    return Source(document, lines)


def _only_converted(path: Path, what: str) -> UsageError:
    advice = f"convert it with `detent convert {path} > detent.yaml`, and use that"
    return UsageError(f"{quote(str(path))} is {what}, which does not run as it is; {advice}")


def _source(converted: Converted) -> Source:
    return Source(converted.document, converted.lines, converted.warnings)


def source_files(path: Path) -> tuple[Path, ...]:
    """The files and folders that a manifest is read from."""
    return tuple(part for part, _ in path.parts_of()) if isinstance(path, CrontabPath) else (path,)


def convert_file(path: Path, env: Mapping[str, str], more: Sequence[str] = ()) -> Converted:
    """A foreign file as a version 2 manifest; `more` are further units of systemd."""
    if more and not _is_systemd(path):
        raise UsageError(f"only units of systemd are converted together; leave {quote(more[0])} away")
    if more:
        return convert_units([path, *map(Path, more)], env)
    kind = next((kind for kind in KINDS.values() if kind.matches(path)), None)
    if kind is None:
        raise UsageError(f"cannot convert {quote(str(path))}: it is no {listed([*KINDS])} file")
    try:
        return kind.convert(path, env)
    except ManifestError as error:
        raise ManifestError(error.problems, error.file or str(path)) from None


# cronlock


def _is_cronlock(path: Path) -> bool:
    if path.suffix.lower() not in PARSERS and path != STDIN:
        return False
    try:
        return is_cronlock(read_document(path)[0], path.name)
    except ManifestError:  # no document that we can read: it may be one of another kind
        return False


def _cronlock(path: Path, env: Mapping[str, str]) -> Converted:
    return _convert_cronlock(path, *read_document(path), env)


def _convert_cronlock(
    path: Path, document: Any, lines: Mapping[str, int], env: Mapping[str, str]
) -> Converted:
    timezone, warnings = local_timezone(env)
    here = CronlockContext(timezone, env, app_name(path.stem), answers=_is_redis)
    converted = convert_cronlock(document, lines, here)
    return converted._replace(warnings=warnings + converted.warnings)


def _is_redis(address: str) -> bool:
    """Does a Redis of this host answer there?  One that wants a password does too."""
    host, _, port = address.rpartition(":") if ":" in address else (address, "", "6379")
    try:
        with socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), ANSWER_S) as link:
            link.settimeout(ANSWER_S)
            link.sendall(b"PING\r\n")
            return link.recv(7).startswith((b"+PONG", b"-NOAUTH"))
    except (OSError, ValueError):
        return False


# crontabs


def _is_crontab(path: Path) -> bool:
    if isinstance(path, CrontabPath) or path.is_dir():
        return isinstance(path, CrontabPath) or path.name == "cron.d"
    if path.suffix.lower() in PARSERS or not (path.is_file() or path == STDIN):
        return False
    try:
        return looks_like_crontab(read_text(path))
    except ManifestError:  # no text at all
        return False


def _crontab(path: Path, env: Mapping[str, str]) -> Converted:
    parts = (path if isinstance(path, CrontabPath) else CrontabPath(path)).parts_of()
    found = [(file, said) for part, said in parts for file in crontabs_in(part)]
    is_one = len(parts) == 1 and not parts[0][0].is_dir()
    warnings, files = [*_ignored_files(parts)], list[File]()
    for file, said in found:
        text, name = read_text(file), "" if is_one else str(file)
        form, doubt = (said, "") if said else form_of(file, text)
        files.append(File(text, form, name))
        warnings += [Problem(path=name, message=doubt, code=FOREIGN)] if doubt else []
    timezone, about_zone = local_timezone(env)
    converted = convert_crontabs(files, LocalContext(timezone, _homes(env), _crontab_app(parts)))
    return converted._replace(warnings=(*about_zone, *warnings, *converted.warnings))


def _crontab_app(parts: Sequence[tuple[Path, Form | None]]) -> str:
    """Named after its user, where it stands in cron's spool, else after the first file or folder."""
    first = parts[0][0].absolute()
    return app_name(f"crontab-{first.name}" if "spool" in first.parts else first.name)


def crontabs_in(path: Path) -> list[Path]:
    """The file, or those of a folder that cron would read."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.is_file() and _CRON_D_NAME.fullmatch(file.name))


def _ignored_files(parts: list[tuple[Path, Form | None]]) -> Iterator[Problem]:
    for folder in (part for part, _ in parts if part.is_dir()):
        names = [file.name for file in sorted(folder.iterdir()) if not _CRON_D_NAME.fullmatch(file.name)]
        for name in (name for name in names if not name.startswith(".")):
            message = "it is not read: cron reads no file with such a name; rename it if it should fire"
            yield Problem(path=str(folder / name), message=message, code=FOREIGN)


def form_of(file: Path, text: str) -> tuple[Form, str]:
    """The form of a crontab, and what is doubtful about it."""
    place = file.absolute()
    if place.parent.name == "cron.d" or str(place) == "/etc/crontab":
        return "system", ""
    if "spool" in place.parts:
        return "user", ""
    return guess_form(text, {entry.pw_name for entry in pwd.getpwall()})


def _homes(env: Mapping[str, str]) -> dict[str, str]:
    """Where the commands of each user begin; one without a home begins at the root, as under cron."""
    homes = {entry.pw_name: entry.pw_dir for entry in pwd.getpwall()}
    homes[""] = env.get("HOME", "")
    return {user: home if Path(home).is_dir() else "/" for user, home in homes.items() if home}


# Kubernetes


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
    from detent.formats.kubernetes.convert import convert_kubernetes  # late: few start for this

    return convert_kubernetes(*read_documents(path), app_name(path.stem))


def read_documents(path: Path) -> tuple[list[Any], dict[str, int]]:
    """All documents of a file; the paths of their lines start with the number of the document."""
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


# systemd


def _is_systemd(path: Path) -> bool:
    if path.is_dir():
        return any(path.glob("*.timer"))
    return path.suffix in UNITS


def _systemd(path: Path, env: Mapping[str, str]) -> Converted:
    return convert_units([path], env)


def convert_units(paths: Sequence[Path], env: Mapping[str, str]) -> Converted:
    """The timers in these files and folders; a service that was not given is looked for beside its timer."""
    from detent.formats.systemd.convert import convert_systemd  # late: few start for this

    files = [file for path in paths for file in (_units_in(path) if path.is_dir() else [path])]
    texts: dict[str, str] = {}
    for file in files:
        for beside in [file, *_services_beside(file)]:
            if beside.name not in texts and (beside.is_file() or beside == file):
                texts[beside.name] = read_text(beside)
                drop_ins = sorted(beside.with_name(f"{beside.name}.d").glob("*.conf"))
                texts.update((f"{beside.name}.d/{drop.name}", read_text(drop)) for drop in drop_ins)
    timezone, warnings = local_timezone(env)
    converted = convert_systemd(texts, timezone, app_name(paths[0].stem))
    return converted._replace(warnings=warnings + converted.warnings)


def _units_in(folder: Path) -> list[Path]:
    """The timers of a folder: of its services only those that they start are of interest."""
    return sorted(file for file in folder.iterdir() if file.suffix == ".timer" and file.is_file())


def _services_beside(file: Path) -> list[Path]:
    from detent.formats.systemd.convert import services_of  # late: few start for this
    from detent.formats.systemd.units import parse_unit

    if file.suffix != ".timer" or not file.is_file():
        return []
    return [file.with_name(name) for name in services_of(parse_unit(file.name, read_text(file)))]


# The machine


def local_timezone(env: Mapping[str, str]) -> tuple[str, tuple[Problem, ...]]:
    """The IANA name of this machine's time zone; where nothing tells it, UTC and a warning."""
    for name in (env.get("TZ", "").removeprefix(":"), _zone_of_link(), _first_line(TIMEZONE)):
        if name and _is_zone(name):
            return _PLAIN_UTC.get(name, name), ()
    told = "the time zone of this machine is not known: schedules are in UTC; set TZ, like TZ=Europe/Berlin"
    return "UTC", (Problem(path="", message=told, code=FOREIGN),)


def _zone_of_link() -> str:
    try:
        return str(LOCALTIME.resolve()).partition("/zoneinfo/")[2]
    except OSError:
        return ""


def _first_line(path: Path) -> str:
    try:
        return path.read_text().partition("\n")[0].strip()
    except (OSError, ValueError):
        return ""


def _is_zone(name: str) -> bool:
    try:
        open_zone(name)
    except UsageError:
        return False
    return True


KINDS: dict[str, FileKind] = {  # tried in this order
    "cronlock": FileKind(_is_cronlock, _cronlock, is_runnable=True),
    "crontab": FileKind(_is_crontab, _crontab, is_runnable=True),
    "Kubernetes": FileKind(_is_kubernetes, _kubernetes),
    "systemd": FileKind(_is_systemd, _systemd),
}
