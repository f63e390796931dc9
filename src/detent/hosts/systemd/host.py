"""systemd: a timer and a service for each schedule, in the unit directory of the system or of a user.

- A timer is enabled by its link in `timers.target.wants`.  A timer without it, or a stopped one, has drifted.
- A running systemd that reads the directory is reloaded at once; otherwise the units wait for the next boot.
- Drop-ins (`systemctl edit`) are not touched.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from detent.errors import HostError, UsageError
from detent.formats.systemd.convert import convert_systemd, services_of
from detent.formats.systemd.render import calendar_events
from detent.formats.systemd.service import TRUE
from detent.formats.systemd.units import parse_unit
from detent.hosts.adoption import DYNAMIC_USER, Identity, Unmanaged, unmanaged_job
from detent.hosts.base import Host, Option, Settings, environment_warnings, render_schedules, write_atomically
from detent.hosts.reconcile import PREFIX, Change, Found, Resource, resource_name
from detent.hosts.spec_folder import KIND as SPEC
from detent.hosts.spec_folder import SpecFolder, spec_resources
from detent.hosts.systemd.systemctl import Systemctl
from detent.hosts.systemd.units import TriggerCommand, make_service, make_timer, read_unit
from detent.manifest.spec import Spec

OPTIONS = (
    Option(
        "unit-dir",
        "the directory of the units (default: /etc/systemd/system, or the user's)",
        "DIR",
        is_location=True,
    ),
    Option("user", "use the systemd of the current user", is_location=True),
    Option("run-as", "the user that the triggers run as (default: root)", "USER"),
)
SYSTEM_UNITS = Path("/etc/systemd/system")
WANTS = "timers.target.wants"
NAME_MAX = 200  # systemd allows 255, including the suffix
RESTRICTING = (
    *("Ambient", "CapabilityBoundingSet", "Device", "Group", "IPAddress", "Inaccessible", "KeyringMode"),
    *("LockPersonality", "MemoryDeny", "NoExec", "NoNewPrivileges", "Private", "Proc", "Protect", "ReadOnly"),
    *("RemoveIPC", "Restrict", "Root", "SecureBits", "Supplementary", "SystemCall", "TemporaryFileSystem"),
)
NOT_SET = ("no", "false", "off", "0", "n", "f")


def open_host(settings: Settings) -> Host:
    is_user = bool(settings.options.get("user"))
    if is_user and settings.option("run_as"):
        raise UsageError("--run-as is for system units: with --user, triggers run as that user")
    return SystemdHost(settings, is_user)


class SystemdHost:
    name = "systemd"

    def __init__(self, settings: Settings, is_user: bool) -> None:
        usual = _user_units(settings) if is_user else SYSTEM_UNITS
        self._units = Path(settings.option("unit_dir", str(usual))).absolute()
        self.where = str(self._units)
        self._settings = settings
        self._is_user = is_user
        owner, run_as = "the user" if is_user else "root", settings.option("run_as")
        self.identity = Identity(run_as or owner, owner, not is_user and not run_as)
        self._specs = SpecFolder(settings.spec_dir, settings.option("run_as"))
        self._systemctl = Systemctl(is_user, is_read=self._units == usual)

    def lock(self) -> AbstractContextManager[None]:
        label = str(self._units).strip("/").replace("/", "-")
        return self._settings.lock(f"systemd-{label}")

    def render(self, specs: Sequence[Spec]) -> list[Resource]:
        units = render_schedules(self.name, specs, self._pair)
        return [*spec_resources(specs), *(one for _, made in units for one in made)]

    def _pair(self, spec: Spec, index: int) -> list[Resource]:
        events = calendar_events(spec.times[index].instants)
        name = resource_name(spec.name, index, NAME_MAX)
        trigger = TriggerCommand(
            self._settings.trigger_words(spec.name), self._is_user, self._settings.option("run_as")
        )
        return [make_service(name, spec, trigger), make_timer(name, spec, index, events)]

    def find(self) -> list[Found]:
        names = sorted(path.name for path in self._files() if path.name.startswith(PREFIX))
        active = self._systemctl.is_active([name for name in names if name.endswith(".timer")])
        units = [read_unit(name, self._read(name), list(self._notes(name, active))) for name in names]
        return [*self._specs.find({unit.job for unit in units if unit.job}), *units]

    def _files(self) -> list[Path]:
        try:
            found = [path for path in self._units.iterdir() if path.suffix in (".timer", ".service")]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [path for path in found if path.is_file() and not path.name.startswith(".")]

    def _read(self, name: str) -> str:
        return (self._units / name).read_bytes().decode("utf-8", "surrogateescape")

    def _notes(self, name: str, active: dict[str, bool]) -> Iterator[str]:
        if name.endswith(".timer") and not self._link(name).is_symlink():
            yield "not enabled"
        if not active.get(name, True):
            yield "not active"

    def _link(self, timer: str) -> Path:
        return self._units / WANTS / timer

    def change(self, changes: Sequence[Change], retire: Sequence[Unmanaged] = ()) -> None:
        """Stop and remove old timers first, and start new ones when all files are written."""
        units = [change for change in changes if change.kind != SPEC]
        gone = [change.name for change in units if change.action == "delete"]
        fresh = [change for change in units if change.action in ("create", "update")]
        self._specs.write(changes)
        try:
            self._systemctl.stop([name for name in gone if name.endswith(".timer")])
            self._remove(gone)
            self._retire(retire)
            self._write(fresh)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise HostError(f"cannot write {error.filename or self._units}: {why}; try sudo") from None
        if units or retire:
            self._systemctl.reload()
            self._systemctl.start([change.name for change in fresh if change.kind == "timer"])
        self._specs.delete(changes)

    def _write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.after:
                if change.before:
                    self._back_up(change.name)
                write_atomically(self._units / change.name, change.after.content.encode(), 0o644)
        for change in changes:
            if change.kind == "timer" and not self._link(change.name).is_symlink():
                self._link(change.name).parent.mkdir(exist_ok=True)
                self._link(change.name).symlink_to(self._units / change.name)

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._link(name).unlink(missing_ok=True)
            (self._units / name).unlink(missing_ok=True)
        wants = self._units / WANTS
        if names and wants.is_dir() and not any(wants.iterdir()):
            wants.rmdir()

    def _retire(self, unmanaged: Sequence[Unmanaged]) -> None:
        self._systemctl.stop([entry.place for entry in unmanaged])
        for entry in unmanaged:
            names = [entry.place, *_services_beside(entry.place, self._texts())]
            for name in names:
                self._back_up(name)
            self._remove(names)

    def _back_up(self, name: str) -> None:
        if (self._units / name).exists():
            self._settings.back_up(name, (self._units / name).read_bytes())

    def _texts(self) -> dict[str, str]:
        return {path.name: self._read(path.name) for path in self._files()}

    def unmanaged(self) -> list[Unmanaged]:
        ours = {unit.name for unit in self.find() if unit.job}
        texts, zone = self._texts(), self._settings.timezone
        timers = [name for name in texts if name.endswith(".timer") and name not in ours]
        return [entry for name in timers for entry in _entries_of(name, texts, zone)]

    def warnings(self, specs: Sequence[Spec]) -> list[str]:
        advice = self._systemctl.advice()
        return [*environment_warnings(specs, "systemd"), *([advice] if advice else [])]


def _user_units(settings: Settings) -> Path:
    given = settings.env.get("XDG_CONFIG_HOME", "")
    home = Path(given) if given.startswith("/") else Path("~/.config").expanduser()
    return home / "systemd" / "user"


def _services_beside(timer: str, texts: Mapping[str, str]) -> list[str]:
    """Return the services of a timer that are in the same directory."""
    try:
        return [name for name in services_of(parse_unit(timer, texts[timer])) if name in texts]
    except UsageError:
        return []


def _entries_of(timer: str, texts: Mapping[str, str], timezone: str) -> list[Unmanaged]:
    """Return the jobs of a timer; none if it cannot be converted, as there is nothing to compare."""
    units = {name: texts[name] for name in (timer, *_services_beside(timer, texts))}
    try:
        jobs = convert_systemd(units, timezone).document["jobs"]
    except UsageError:
        return []
    services = [parse_unit(name, text) for name, text in units.items() if name != timer]
    settings = [entry for service in services for entry in service.entries if entry.section == "Service"]
    limits = {one.key for one in settings if one.key.startswith(RESTRICTING) and one.value not in NOT_SET}
    is_dynamic = any(one.text("Service", "DynamicUser", "no") in TRUE for one in services)
    found = [unmanaged_job(timer, texts[timer], job, timezone) for job in jobs]
    return [
        one._replace(limits=tuple(sorted(limits)), user=DYNAMIC_USER if is_dynamic else one.user)
        for one in found
    ]
