"""The seam of hosts: what an outside scheduler must offer, so that it rings and `detent trigger` judges.

The rules of a host:

1. It rings at least whenever a schedule has an instant; ringing too often is harmless, too seldom is not.
   What it cannot ring for is refused by `render`, all of it at once, before anything is written.
2. A resource carries a mark: the job, the job's revision, a seal over the content.  What has no mark is
   foreign: it is neither changed nor removed but by `retire`, which somebody asked for by name.
3. `render` is a function of its arguments and the host's settings: the same today and tomorrow.
4. `change` brings about what it is told or raises `HostError`; done twice, the second changes nothing.
   Where a host keeps several resources in one document, the document is written once, atomically.
5. Whatever a name, a command, a header or a path contains: one resource stays one resource.
6. Whoever reads, decides and changes does so while holding `lock`.

A host is a module of this folder with `OPTIONS` and `open_host(Settings)`; `testing.check_host` is its suite.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import ceil
from pathlib import Path
from tempfile import mkstemp
from typing import Any, NamedTuple, Protocol

from detent import clock
from detent.errors import HostError, UsageError
from detent.hosts.adoption import Identity, Unmanaged
from detent.hosts.reconcile import Change, Found, Resource
from detent.manifest.spec import Spec
from detent.model import Command, Policy
from detent.rules.lanes import HOST_EARLY_S
from detent.rules.planning import HOOK_POLICY
from detent.rules.trust import AFTER_TIMEOUT_S, lane_wait_s
from detent.text import quote

SPEC_DIR = Path("/etc/detent/jobs")  # where a trigger looks unless it is told otherwise
HISTORY = "history.jsonl"
BACKUPS_MAX = 20  # of each place; the oldest go first
HISTORY_MAX = 10_000  # lines that are read back
STOP_S = 60  # after SIGTERM: the attempt is ended and settled by then

_RELATIVE = re.compile(r"(^|\s)\.\.?/")
_TRIGGER = re.compile(
    r"(?:^|[\s/])detent\s+trigger\s(?:.*\s)?([a-z][a-z0-9-]*\.[a-z][a-z0-9-]*)(?![^\s;|&>])"
)


class Option(NamedTuple):
    """An option of the command line that a host understands."""

    name: str  # unit-dir; it is given to the host as unit_dir
    about: str
    metavar: str = ""  # "": it is a flag
    is_location: bool = False  # it says where to look, so verbs that only look take it too
    only: str = ""  # the one verb that takes it; "": all that compare a host with a manifest


class Settings(NamedTuple):
    """What a host is told about where it is and how to ring."""

    app: str
    detent: str = "detent"  # the program to ring, as a path
    spec_dir: Path = SPEC_DIR
    state_dir: Path = Path("/var/lib/detent")
    timezone: str = "UTC"  # of this machine
    env: Mapping[str, str] = {}
    options: Mapping[str, Any] = {}  # those of `OPTIONS` that were given, by name with _ for -

    def option(self, name: str, default: str = "") -> str:
        return str(self.options.get(name) or default)

    def trigger_words(self, job: str) -> list[str]:
        """The words by which a host on this machine rings for a job."""
        said = [] if self.spec_dir == SPEC_DIR else ["--spec-dir", str(self.spec_dir)]
        return [self.detent, "trigger", *said, job]


class Host(Protocol):
    """An outside scheduler."""

    name: str  # crontab
    where: str  # for people: `the crontab of root`
    identity: Identity  # that triggers run as

    def lock(self) -> AbstractContextManager[None]:
        """Nobody else applies here meanwhile."""

    def render(self, specs: Sequence[Spec]) -> list[Resource]:
        """Everything that the host needs for these jobs; one `UsageError` with all that it cannot mean."""

    def find(self) -> list[Found]:
        """Everything of ours, of every app, and what is foreign under a name that could be ours."""

    def change(self, changes: Sequence[Change], retire: Sequence[Unmanaged] = ()) -> None:
        """Create, update and delete as told; unmanaged that are retired go, with a backup."""

    def unmanaged(self) -> list[Unmanaged]:
        """What fires here and is not ours."""

    def warnings(self, specs: Sequence[Spec]) -> list[str]:
        """What a person should know before these jobs are applied."""


class UnsupportedSchedule(NamedTuple):
    """A schedule that a host cannot ring for, and what to do instead."""

    job: str
    schedule: str
    why: str

    def __str__(self) -> str:
        return f"{self.job}: schedule {json.dumps(self.schedule, ensure_ascii=False)}: {self.why}"


def render_schedules(
    host: str, specs: Sequence[Spec], make: Callable[[Spec, int], Iterable[Resource]]
) -> list[Resource]:
    """What `make` makes of each schedule of each job, by its number; all that it refuses is told at once."""
    made, unsupported = list[Resource](), list[UnsupportedSchedule]()
    for spec in specs:
        for index, time in enumerate(spec.times):
            try:
                made += make(spec, index)
            except UsageError as error:
                unsupported.append(UnsupportedSchedule(spec.name, time.text, str(error)))
    refuse_unsupported(host, unsupported)
    return made


def refuse_unsupported(host: str, unsupported: Sequence[UnsupportedSchedule]) -> None:
    """All of it at once, before anything is written."""
    if unsupported:
        told = "\n".join(f"  {one}" for one in unsupported)
        raise UsageError(f"{host} cannot ring for this; nothing was changed:\n{told}")


def triggered_job(command: str) -> str:
    """The job that a command of somebody's triggers; "": it is another command."""
    found = _TRIGGER.search(command)
    return found[1] if found else ""


def environment_warnings(specs: Sequence[Spec], host: str) -> Iterator[str]:
    """A host starts a trigger in surroundings of its own: none of a shell's variables, another folder."""
    for spec in specs:
        work = spec.job.work
        if spec.variables:
            told = f"its secret is in the variable {spec.variables[0]}, which {host} does not have"
            yield f"{spec.name}: {told}; put it into a file, and refer to it as file:/path"
        if isinstance(work, Command) and not work.work_dir and _RELATIVE.search(work.words[-1]):
            told = f"{quote(work.words[-1])} is looked for in another folder under {host}"
            yield f"{spec.name}: {told}; write the whole path, or give the job a work_dir"


def trigger_max_s(policy: Policy) -> int:
    """After so long a trigger has ended, whatever its attempts and hooks did."""
    attempts = policy.retries.max_attempts
    waits = policy.retries.max_s * (1 + policy.retries.jitter) * (attempts - 1)
    hooks = HOOK_POLICY.timeout_s * (len(policy.hooks) + 1)
    runs = attempts * (policy.timeout_s + AFTER_TIMEOUT_S)
    return ceil(HOST_EARLY_S + lane_wait_s(policy.timeout_s) + runs + waits + hooks)


# What hosts on this machine share.


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Held until the end of the block, or of the process; whoever else wants it waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def write_atomically(path: Path, content: bytes, mode: int, owner: str = "") -> None:
    """The whole file or nothing of it.  One that is there keeps its mode and owner; `owner` is for a new
    one.  The name in between starts with a dot: no host reads such a file."""
    path = path.resolve()  # a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    fresh = Path(name)
    try:
        _give(fd, path, mode, owner)
        with os.fdopen(fd, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _give(fd: int, path: Path, mode: int, owner: str) -> None:
    """The new file's mode and owner: those of the old one, where there is one."""
    try:
        old = path.stat()
        uid, gid, mode = old.st_uid, old.st_gid, old.st_mode & 0o7777
    except FileNotFoundError:
        uid, gid = ids_of(owner) if owner else (os.geteuid(), os.getegid())
    if (uid, gid) != (os.geteuid(), os.getegid()):
        os.fchown(fd, uid, gid)
    os.fchmod(fd, mode)


def ids_of(user: str) -> tuple[int, int]:
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise HostError(f"there is no user {user} on this machine") from None
    return entry.pw_uid, entry.pw_gid


def back_up(folder: Path, label: str, content: bytes) -> Path:
    """What was there before a change, kept beside the newest of its kind; where it was put."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    stamp = clock.now().strftime("%Y%m%dT%H%M%S.%fZ")
    path = folder / f"{label}.{stamp}"
    write_atomically(path, content, 0o600)
    for old in sorted(folder.glob(f"{label}.*Z"))[:-BACKUPS_MAX]:
        old.unlink(missing_ok=True)
    return path


def record_change(state_dir: Path, **told: Any) -> None:
    """One line for `detent history --host`."""
    folder = state_dir / "hosts"
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"time": clock.now().isoformat(timespec="seconds"), **told}, ensure_ascii=False)
    with (folder / HISTORY).open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


def recorded_changes(state_dir: Path) -> list[dict[str, Any]]:
    """The lines that were recorded, newest first."""
    try:
        lines = (state_dir / "hosts" / HISTORY).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in reversed(lines[-HISTORY_MAX:]) if line.startswith("{")]
