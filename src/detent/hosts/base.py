"""The interface of host schedulers: cron, systemd and others fire, and `detent trigger` runs the job.

The rules of a host:

1. It fires at every instant of a schedule.  Extra fires are harmless: the trigger ignores them.  `render`
   refuses all schedules that the host does not support at once, before anything is written.
2. Each resource has a mark: the job, its revision, and a seal over the content.  Anything without a mark is
   unmanaged, and only changed or removed by `retire`, which a person requests by name.
3. `render` depends only on its arguments and the host's settings.
4. `change` makes the changes or raises `HostError`, and is idempotent.  A document with several resources is
   written once, atomically.
5. One resource stays one resource, whatever a name, a command, a header or a path contains.
6. A caller that reads, decides and changes holds `lock`.

A host is a package of this folder with `host.OPTIONS` and `host.open_host(Settings)`.  Its test suite is
`testing.check_host`.
"""

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
from typing import Any, NamedTuple, Protocol, TypeVar

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

SPEC_DIR = Path("/etc/detent/jobs")  # the default of a trigger
HISTORY = "history.jsonl"
BACKUPS_MAX = 20  # for each place; older ones are deleted
HISTORY_MAX = 10_000  # lines that are read back
STOP_S = 60  # a trigger ends and settles its attempt within this time after SIGTERM

_RELATIVE = re.compile(r"(^|\s)\.\.?/")


Rendered = TypeVar("Rendered")


class Option(NamedTuple):
    name: str  # unit-dir; the host receives it as unit_dir
    about: str
    metavar: str = ""  # "" for a flag
    is_location: bool = False  # says where to look, so read-only verbs have it too
    only: str = ""  # the only verb that has it; "" for all verbs that compare a host with a manifest


class Settings(NamedTuple):
    """The environment of a host, and the options of the command line."""

    app: str
    detent: str = "detent"  # the path of the program that entries run
    spec_dir: Path = SPEC_DIR
    state_dir: Path = Path("/var/lib/detent")
    timezone: str = "UTC"  # of this machine
    env: Mapping[str, str] = {}
    options: Mapping[str, Any] = {}  # given options by name, with _ for -

    def option(self, name: str, default: str = "") -> str:
        return str(self.options.get(name) or default)

    def trigger_words(self, job: str) -> list[str]:
        """Return the command that a host on this machine runs for a job."""
        folder = [] if self.spec_dir == SPEC_DIR else ["--spec-dir", str(self.spec_dir)]
        return [self.detent, "trigger", *folder, job]

    @contextmanager
    def lock(self, label: str) -> Iterator[None]:
        """Hold an exclusive lock, which also ends with the process."""
        path = self.state_dir / "hosts" / f"{label}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def back_up(self, label: str, content: bytes) -> None:
        """Save the old content before a change, and delete the oldest backups of this label."""
        folder = self.state_dir / "hosts" / "backups"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(folder / f"{label}.{clock.now():%Y%m%dT%H%M%S.%fZ}", content, 0o600)
        for old in sorted(folder.glob(f"{label}.*Z"))[:-BACKUPS_MAX]:
            old.unlink(missing_ok=True)


class Host(Protocol):
    name: str  # crontab
    where: str  # for people: `the crontab of root`
    identity: Identity  # of its triggers

    def lock(self) -> AbstractContextManager[None]:
        """Prevent concurrent changes."""

    def render(self, specs: Sequence[Spec]) -> list[Resource]:
        """Return all resources for these jobs, or raise one `UsageError` with everything unsupported."""

    def find(self) -> list[Found]:
        """Return detent's resources of every app, and unmanaged ones whose name could be detent's."""

    def change(self, changes: Sequence[Change], retire: Sequence[Unmanaged] = ()) -> None:
        """Create, update and delete resources.  Retired entries are backed up and removed."""

    def unmanaged(self) -> list[Unmanaged]:
        """Return the entries that fire and are not managed by detent."""

    def warnings(self, specs: Sequence[Spec]) -> list[str]:
        """Return warnings to show before these jobs are applied."""


def render_schedules(
    host: str, specs: Sequence[Spec], render: Callable[[Spec, int], Iterable[Rendered]]
) -> list[tuple[Spec, list[Rendered]]]:
    """Render each schedule of each job by its number, without duplicates, and refuse all unsupported ones
    together."""
    made, unsupported = list[tuple[Spec, list[Rendered]]](), list[str]()
    for spec in specs:
        rendered: list[Rendered] = []
        for index, time in enumerate(spec.times):
            try:
                rendered += render(spec, index)
            except UsageError as error:
                text = json.dumps(time.text, ensure_ascii=False)
                unsupported.append(f"  {spec.name}: schedule {text}: {error}")
        made.append((spec, list(dict.fromkeys(rendered))))
    refuse_unsupported(host, unsupported)
    return made


def refuse_unsupported(host: str, unsupported: Sequence[str]) -> None:
    if unsupported:
        lines = "\n".join(unsupported)
        raise UsageError(f"{host} does not support these schedules; nothing was changed:\n{lines}")


def environment_warnings(specs: Sequence[Spec], host: str) -> Iterator[str]:
    """Warn about jobs that rely on a shell's variables or working directory, which a host does not have."""
    for spec in specs:
        work = spec.job.work
        if spec.variables:
            message = f"its secret is in the variable {spec.variables[0]}, which {host} does not have"
            yield f"{spec.name}: {message}; move it to a file, and refer to it as file:/path"
        if isinstance(work, Command) and not work.work_dir and _RELATIVE.search(work.words[-1]):
            message = f"{host} runs {quote(work.words[-1])} in another directory"
            yield f"{spec.name}: {message}; write an absolute path, or set work_dir"


def trigger_max_s(policy: Policy) -> int:
    """Return how long a trigger can take, with all its attempts and hooks."""
    attempts = policy.retries.max_attempts
    waits = policy.retries.max_s * (1 + policy.retries.jitter) * (attempts - 1)
    hooks = HOOK_POLICY.timeout_s * (len(policy.hooks) + 1)
    runs = attempts * (policy.timeout_s + AFTER_TIMEOUT_S)
    return ceil(HOST_EARLY_S + lane_wait_s(policy.timeout_s) + runs + waits + hooks)


def write_atomically(path: Path, content: bytes, mode: int, owner: str = "") -> None:
    """Replace the whole file.  An existing file keeps its mode and owner; `mode` and `owner` are for a new
    one.  The temporary name starts with a dot, because no host reads such a file."""
    path = path.resolve()  # keeps a symbolic link
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    fresh = Path(name)
    try:
        _set_owner(fd, path, mode, owner)
        with os.fdopen(fd, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _set_owner(fd: int, path: Path, mode: int, owner: str) -> None:
    uid, gid = os.geteuid(), os.getegid()
    try:
        old = path.stat()
        uid, gid, mode = old.st_uid, old.st_gid, old.st_mode & 0o7777
    except FileNotFoundError:
        if owner:
            try:
                uid, gid = pwd.getpwnam(owner)[2:4]
            except KeyError:
                raise HostError(f"this machine has no user {owner}") from None
    if (uid, gid) != (os.geteuid(), os.getegid()):
        os.fchown(fd, uid, gid)
    os.fchmod(fd, mode)


def record_change(state_dir: Path, **fields: Any) -> None:
    """Append one line for `detent history --host`."""
    folder = state_dir / "hosts"
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"time": clock.now().isoformat(timespec="seconds"), **fields}, ensure_ascii=False)
    with (folder / HISTORY).open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


def recorded_changes(state_dir: Path) -> list[dict[str, Any]]:
    """Return the recorded lines, newest first."""
    try:
        lines = (state_dir / "hosts" / HISTORY).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in reversed(lines[-HISTORY_MAX:]) if line.startswith("{")]
