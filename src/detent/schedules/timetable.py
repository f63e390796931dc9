"""When a job fires: cron expressions, shortcuts, `@every` and one-off instants, joined into one schedule.

- Inside, an instant is a whole Unix second; at the border, an aware UTC datetime.
- `@every` counts from the Unix epoch, whatever the zone, so that every node agrees without a store.
- `starts_at` and `ends_at` are included.  Instants that several expressions name are one instant.
- A schedule that can never fire is refused here, with the reason.
- `@reboot` has no instants of its own: a node fires it, once a boot of its host.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Protocol

from detent.errors import UsageError
from detent.model import Schedule
from detent.schedules.cron import SHORTCUTS, Pattern, parse_cron
from detent.schedules.cronfields import Grammar
from detent.schedules.wallclock import WallClock, check_dst
from detent.schedules.zones import FIRST_S, LAST_S, open_zone
from detent.text import quote

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_S = 86_400
from_unix = datetime.fromtimestamp
SCHEDULE_TEXT_MAX = 1_000  # characters: more than any list of values needs
EVERY_DIGITS_MAX = 10  # of one number
EVERY_MIN_S = {1: 60, 2: 1}  # by version of the manifest
AT_BOOT = "@reboot"
UNITS = {"h": 3_600, "m": 60, "s": 1}


class Instants(Protocol):
    """Unix seconds that grow strictly."""

    def next(self, after: int) -> int | None:
        """The first one later than this."""

    def previous(self, before: int) -> int | None:
        """The last one earlier than this."""

    def note(self, instant: int) -> str:
        """What a person should know about this one."""


class Timetable:
    """A job's schedule: `model.Schedule` over any instants."""

    __slots__ = ("_next", "instants")

    def __init__(self, instants: Instants) -> None:
        self.instants = instants
        self._next = instants.next

    def after(self, instant: datetime) -> datetime | None:
        since = instant - EPOCH
        found = self._next(since.days * DAY_S + since.seconds)
        return None if found is None else from_unix(found, UTC)

    def before(self, instant: datetime) -> datetime | None:
        found = self.instants.previous(ceiling(instant))
        return None if found is None else from_unix(found, UTC)

    def between(self, since: datetime, until: datetime) -> Iterator[datetime]:
        last = floor(until)
        found = self._next(floor(since))
        while found is not None and found <= last:
            yield from_unix(found, UTC)
            found = self._next(found)


class Every:
    """Multiples of a period since the epoch."""

    __slots__ = ("period_s",)

    def __init__(self, period_s: int) -> None:
        self.period_s = period_s

    def next(self, after: int) -> int | None:
        found = (max(after, FIRST_S) // self.period_s + 1) * self.period_s
        return found if found <= LAST_S else None

    def previous(self, before: int) -> int | None:
        found = (min(before, LAST_S) - 1) // self.period_s * self.period_s
        return found if found >= FIRST_S else None

    def note(self, instant: int) -> str:
        return ""


class Once:
    """A single instant."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at

    def next(self, after: int) -> int | None:
        return self.at if after < self.at else None

    def previous(self, before: int) -> int | None:
        return self.at if before > self.at else None

    def note(self, instant: int) -> str:
        return ""


class AtBoot:
    """No instant that could be known beforehand: it fires when its host has started."""

    __slots__ = ()

    def next(self, after: int) -> int | None:
        return None

    def previous(self, before: int) -> int | None:
        return None

    def note(self, instant: int) -> str:
        return ""


class Merged:
    """All instants of several, each once."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Instants, ...]) -> None:
        self.parts = parts

    def next(self, after: int) -> int | None:
        return min((at for part in self.parts if (at := part.next(after)) is not None), default=None)

    def previous(self, before: int) -> int | None:
        return max((at for part in self.parts if (at := part.previous(before)) is not None), default=None)

    def note(self, instant: int) -> str:
        due = (part for part in self.parts if part.next(instant - 1) == instant)
        return "; ".join(dict.fromkeys(note for part in due if (note := part.note(instant))))


class Bounded:
    """The instants from `first` to `last`, both included."""

    __slots__ = ("first", "last", "part")

    def __init__(self, part: Instants, first: int, last: int) -> None:
        self.part, self.first, self.last = part, first, last

    def next(self, after: int) -> int | None:
        found = self.part.next(max(after, self.first - 1))
        return found if found is not None and found <= self.last else None

    def previous(self, before: int) -> int | None:
        found = self.part.previous(min(before, self.last + 1))
        return found if found is not None and found >= self.first else None

    def note(self, instant: int) -> str:
        return self.part.note(instant)


# From text.


def never() -> Timetable:
    """The schedule of a job that only comes after others."""
    return Timetable(Merged(()))


def parse_schedule(
    text: str, *, timezone: str = "UTC", dst: str = "vixie", version: int = 2, seed: str = ""
) -> Timetable:
    """The schedule of one expression.  `seed` is the job's name, which `H` hangs on."""
    zone, rule = open_zone(timezone), check_dst(dst)
    stripped = text.strip()
    grammar = Grammar(version, seed if "H" in stripped.upper() else "")
    try:
        if len(stripped) > SCHEDULE_TEXT_MAX:
            raise UsageError(f"it has {len(stripped)} characters; {SCHEDULE_TEXT_MAX} are allowed")
        if stripped.lower() == AT_BOOT and version >= 2:
            return Timetable(AtBoot())
        if stripped.startswith("@") and stripped.lower() not in SHORTCUTS:
            return Timetable(Every(_parse_every(stripped, version)))
        return Timetable(WallClock(parse_cron(stripped, grammar), zone, rule))
    except UsageError as error:
        raise UsageError(f"bad schedule {quote(text)}: {error}") from None


def _parse_every(text: str, version: int) -> int:
    """Seconds from `@every 90s`, in version 2 also `@every 1h30m`."""
    words = text.lower().split()
    if words[0] != "@every":
        known = (*SHORTCUTS, AT_BOOT) if version >= 2 else SHORTCUTS
        raise UsageError(f"{words[0]} is not one of {', '.join(known)} and @every")
    amounts = _amounts(words[1]) if len(words) == 2 else None
    if amounts is None or (version < 2 and len(amounts) > 1):
        form = "1h30m, 90s or 2h" if version >= 2 else "90s, 5m or 2h, with one unit"
        raise UsageError(f"write @every and a duration such as {form}; the units are h, m and s")
    period_s = sum(amounts)
    if period_s < EVERY_MIN_S[min(version, 2)]:
        raise UsageError(f"{period_s} s is too often; at least {EVERY_MIN_S[min(version, 2)]} s")
    if period_s > LAST_S:
        raise UsageError("it never fires: the first instant lies after the year 9999")
    return period_s


def _amounts(text: str) -> list[int] | None:
    """The seconds of each number with its unit; units go from h down to s, each at most once."""
    amounts, rest = [], text
    for unit, unit_s in UNITS.items():
        number, found, after = rest.partition(unit)
        if found:
            if not (number.isascii() and number.isdigit() and len(number) <= EVERY_DIGITS_MAX):
                return None
            amounts.append(int(number) * unit_s)
            rest = after
    return amounts if amounts and not rest else None


def once(at: str | datetime) -> Timetable:
    """The schedule of a one-off: `at: 2026-12-24T18:00+01:00`."""
    instant = parse_instant(at, "at")
    if instant.microsecond:
        raise UsageError(f"bad at {quote(str(at))}: a fire is due at a whole second")
    return Timetable(Once(floor(instant)))


def parse_instant(given: str | datetime, name: str) -> datetime:
    """An aware UTC instant from RFC 3339 text, seconds optional; `name` is the field that it stands in."""
    instant = _read_instant(given.strip()) if isinstance(given, str) else given
    if instant is None or instant.tzinfo is None:
        form = "write a date, a time and an offset, such as 2026-12-24T18:00:00+01:00"
        raise UsageError(f"bad {name} {quote(str(given))}: {form}")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise UsageError(f"bad {name} {quote(str(given))}: it lies outside of the calendar") from None


def _read_instant(text: str) -> datetime | None:
    if text[4:5] + text[7:8] + text[13:14] != "--:":  # ISO 8601 has many forms; RFC 3339 has this one
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


# Several as one.


def combine(
    schedules: Iterable[Timetable],
    *,
    starts_at: str | datetime | None = None,
    ends_at: str | datetime | None = None,
) -> Timetable:
    """All instants of these schedules, from `starts_at` to `ends_at`."""
    parts = tuple(schedule.instants for schedule in schedules)
    if not parts:
        raise UsageError("a job needs at least one schedule")
    merged: Instants = parts[0] if len(parts) == 1 else Merged(parts)
    if starts_at is None and ends_at is None:
        return Timetable(merged)
    first = FIRST_S if starts_at is None else ceiling(parse_instant(starts_at, "starts_at"))
    last = LAST_S if ends_at is None else floor(parse_instant(ends_at, "ends_at"))
    if first > last:
        raise UsageError(f"bad ends_at {quote(str(ends_at))}: it lies before starts_at {starts_at}")
    bounded = Bounded(merged, first, last)
    if bounded.next(first - 1) is None and not _is_at_boot(merged):
        raise UsageError(f"bad schedule: it never fires {_span(starts_at, ends_at)}")
    return Timetable(bounded)


def _span(starts_at: str | datetime | None, ends_at: str | datetime | None) -> str:
    if starts_at is None:
        return f"until {ends_at}"
    return f"from {starts_at} on" if ends_at is None else f"between {starts_at} and {ends_at}"


def fires_at_boot(schedule: Schedule, now: datetime) -> bool:
    """Is it due when its host has started, and that is now?"""
    return isinstance(schedule, Timetable) and _is_at_boot(schedule.instants, floor(now))


def _is_at_boot(instants: Instants, now: int | None = None) -> bool:
    if isinstance(instants, Bounded):
        inside = now is None or instants.first <= now <= instants.last
        return inside and _is_at_boot(instants.part, now)
    if isinstance(instants, Merged):
        return any(_is_at_boot(part, now) for part in instants.parts)
    return isinstance(instants, AtBoot)


# For people and for checks.


def notes_for(schedule: Schedule, instant: datetime) -> str:
    """What a change of offset has to do with this fire of the schedule; nothing: an empty text."""
    return schedule.instants.note(floor(instant)) if isinstance(schedule, Timetable) else ""


def patterns_of(schedule: Schedule) -> tuple[Pattern, ...]:
    """The cron patterns in a schedule, with the masks of their fields."""
    parts = parts_of(schedule.instants) if isinstance(schedule, Timetable) else ()
    return tuple(part.pattern for part in parts if isinstance(part, WallClock))


def parts_of(instants: Instants) -> Iterator[Instants]:
    """The plain instants that these are made of."""
    if isinstance(instants, Bounded):
        yield from parts_of(instants.part)
    elif isinstance(instants, Merged):
        for part in instants.parts:
            yield from parts_of(part)
    else:
        yield instants


def floor(instant: datetime) -> int:
    since = instant - EPOCH
    return since.days * DAY_S + since.seconds


def ceiling(instant: datetime) -> int:
    return floor(instant) + (instant.microsecond > 0)


def period_text(seconds: int) -> str:
    """Return seconds in the form of `@every`: 1h30m."""
    text = ""
    for unit, unit_s in UNITS.items():
        count, seconds = divmod(seconds, unit_s)
        text += f"{count}{unit}" if count else ""
    return text or "0s"
