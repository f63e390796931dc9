"""The schedule of a job: cron expressions, `@every` and single instants, combined.

- Internally an instant is a whole Unix second.  The public methods use aware UTC datetimes.
- `@every` counts from the Unix epoch in any zone, so all nodes agree without a store.
- `starts_at` and `ends_at` are inclusive.  An instant that several expressions name counts once.
- A schedule that never fires is refused, with the reason.
- `@reboot` has no instants: a node fires it once after its host has booted.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

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
SCHEDULE_TEXT_MAX = 1_000  # characters
EVERY_MIN_S = {1: 60, 2: 1}  # by manifest version
AT_BOOT = "@reboot"
FOREVER = datetime.max.replace(tzinfo=UTC)  # for `between`: without an end
UNITS = {"h": 3_600, "m": 60, "s": 1}
_DURATION = "(?:([0-9]{1,10})h)?(?:([0-9]{1,10})m)?(?:([0-9]{1,10})s)?"


class Instants(Protocol):
    """Strictly growing Unix seconds."""

    def next(self, after: int) -> int | None:
        """Return the first instant later than this one."""

    def previous(self, before: int) -> int | None:
        """Return the last instant earlier than this one."""


class Timetable:
    """Implements `model.Schedule`."""

    __slots__ = ("instants",)

    def __init__(self, instants: Instants) -> None:
        self.instants = instants

    def after(self, instant: datetime) -> datetime | None:
        found = self.instants.next(floor(instant))
        return None if found is None else from_unix(found, UTC)

    def before(self, instant: datetime) -> datetime | None:
        found = self.instants.previous(ceiling(instant))
        return None if found is None else from_unix(found, UTC)

    def between(self, since: datetime, until: datetime) -> Iterator[datetime]:
        last, following = floor(until), self.instants.next
        found = following(floor(since))
        while found is not None and found <= last:
            yield from_unix(found, UTC)
            found = following(found)


class Every(NamedTuple):
    """Multiples of a period since the Unix epoch."""

    period_s: int

    def next(self, after: int) -> int | None:
        found = (max(after, FIRST_S) // self.period_s + 1) * self.period_s
        return found if found <= LAST_S else None

    def previous(self, before: int) -> int | None:
        found = (min(before, LAST_S) - 1) // self.period_s * self.period_s
        return found if found >= FIRST_S else None


class Once(NamedTuple):
    at: int

    def next(self, after: int) -> int | None:
        return self.at if after < self.at else None

    def previous(self, before: int) -> int | None:
        return self.at if before > self.at else None


class AtBoot:
    """`@reboot`: no instant is known in advance."""

    def next(self, after: int) -> int | None:
        return None

    def previous(self, before: int) -> int | None:
        return None


class Merged(NamedTuple):
    parts: tuple[Instants, ...]

    def next(self, after: int) -> int | None:
        return min((at for part in self.parts if (at := part.next(after)) is not None), default=None)

    def previous(self, before: int) -> int | None:
        return max((at for part in self.parts if (at := part.previous(before)) is not None), default=None)


class Bounded(NamedTuple):
    part: Instants
    first: int  # inclusive
    last: int  # inclusive

    def next(self, after: int) -> int | None:
        found = self.part.next(max(after, self.first - 1))
        return found if found is not None and found <= self.last else None

    def previous(self, before: int) -> int | None:
        found = self.part.previous(min(before, self.last + 1))
        return found if found is not None and found >= self.first else None


# Parsing.


def parse_schedule(
    text: str, *, timezone: str = "UTC", dst: str = "vixie", version: int = 2, seed: str = ""
) -> Timetable:
    """Parse one expression.  `seed` is the name of the job; `H` depends on it."""
    zone, rule = open_zone(timezone), check_dst(dst)
    stripped = text.strip()
    grammar = Grammar(version, seed if "H" in stripped.upper() else "")
    try:
        if len(stripped) > SCHEDULE_TEXT_MAX:
            raise UsageError(f"it has {len(stripped)} characters; at most {SCHEDULE_TEXT_MAX} are allowed")
        if stripped.lower() == AT_BOOT and version >= 2:
            return Timetable(AtBoot())
        if stripped.startswith("@") and stripped.lower() not in SHORTCUTS:
            return Timetable(Every(_parse_every(stripped, version)))
        return Timetable(WallClock(parse_cron(stripped, grammar), zone, rule))
    except UsageError as error:
        raise UsageError(f"bad schedule {quote(text)}: {error}") from None


def _parse_every(text: str, version: int) -> int:
    """Return the seconds of `@every 90s` or, in version 2, `@every 1h30m`."""
    words = text.lower().split()
    if words[0] != "@every":
        known = (*SHORTCUTS, AT_BOOT) if version >= 2 else SHORTCUTS
        raise UsageError(f"{words[0]} is not one of {', '.join(known)} and @every")
    found = re.fullmatch(_DURATION, words[1]) if len(words) == 2 else None
    numbers = found.groups() if found else ("", "", "")
    amounts = [int(number) * unit_s for number, unit_s in zip(numbers, UNITS.values(), strict=True) if number]
    if not amounts or (version < 2 and len(amounts) > 1):
        form = "1h30m, 90s or 2h" if version >= 2 else "90s, 5m or 2h, with one unit"
        raise UsageError(f"write @every and a duration such as {form}; the units are h, m and s")
    period_s = sum(amounts)
    if period_s < EVERY_MIN_S[min(version, 2)]:
        raise UsageError(f"{period_s} s is too often; at least {EVERY_MIN_S[min(version, 2)]} s")
    if period_s > LAST_S:
        raise UsageError("it never fires: the first instant is after the year 9999")
    return period_s


def once(at: str | datetime) -> Timetable:
    """Return the schedule for `at: 2026-12-24T18:00+01:00`."""
    instant = parse_instant(at, "at")
    if instant.microsecond:
        raise UsageError(f"bad at {quote(str(at))}: write whole seconds")
    return Timetable(Once(floor(instant)))


def parse_instant(given: str | datetime, name: str) -> datetime:
    """Parse RFC 3339 text with optional seconds; `name` is the field for error messages."""
    instant = _read_instant(given.strip()) if isinstance(given, str) else given
    if instant is None or instant.tzinfo is None:
        form = "write a date, a time and an offset, such as 2026-12-24T18:00:00+01:00"
        raise UsageError(f"bad {name} {quote(str(given))}: {form}")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise UsageError(f"bad {name} {quote(str(given))}: it is outside the supported years") from None


def _read_instant(text: str) -> datetime | None:
    if text[4:5] + text[7:8] + text[13:14] != "--:":  # other forms of ISO 8601 are refused
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def combine(
    schedules: Iterable[Timetable],
    *,
    starts_at: str | datetime | None = None,
    ends_at: str | datetime | None = None,
) -> Timetable:
    """Merge schedules and limit them to `starts_at` … `ends_at`."""
    parts = tuple(schedule.instants for schedule in schedules)
    if not parts:
        raise UsageError("a job needs at least one schedule")
    merged: Instants = parts[0] if len(parts) == 1 else Merged(parts)
    if starts_at is None and ends_at is None:
        return Timetable(merged)
    first = FIRST_S if starts_at is None else ceiling(parse_instant(starts_at, "starts_at"))
    last = LAST_S if ends_at is None else floor(parse_instant(ends_at, "ends_at"))
    if first > last:
        raise UsageError(f"bad ends_at {quote(str(ends_at))}: it is before starts_at {starts_at}")
    bounded = Bounded(merged, first, last)
    if bounded.next(first - 1) is None and not _is_at_boot(merged):
        raise UsageError(f"bad schedule: it never fires {_span(starts_at, ends_at)}")
    return Timetable(bounded)


def _span(starts_at: str | datetime | None, ends_at: str | datetime | None) -> str:
    if starts_at is None:
        return f"until {ends_at}"
    return f"from {starts_at} on" if ends_at is None else f"between {starts_at} and {ends_at}"


def fires_at_boot(schedule: Schedule, now: datetime) -> bool:
    """Does the schedule contain `@reboot`, and is `now` within its bounds?"""
    return isinstance(schedule, Timetable) and _is_at_boot(schedule.instants, floor(now))


def _is_at_boot(instants: Instants, now: int | None = None) -> bool:
    if isinstance(instants, Bounded):
        inside = now is None or instants.first <= now <= instants.last
        return inside and _is_at_boot(instants.part, now)
    if isinstance(instants, Merged):
        return any(_is_at_boot(part, now) for part in instants.parts)
    return isinstance(instants, AtBoot)


def notes_for(schedule: Schedule, instant: datetime) -> str:
    """Describe how a change of the UTC offset affects this fire; "" if it does not."""
    at = floor(instant)
    parts = parts_of(schedule.instants) if isinstance(schedule, Timetable) else ()
    due = [part for part in parts if isinstance(part, WallClock) and part.next(at - 1) == at]
    return "; ".join(dict.fromkeys(note for part in due if (note := part.note(at))))


def patterns_of(schedule: Schedule) -> tuple[Pattern, ...]:
    parts = parts_of(schedule.instants) if isinstance(schedule, Timetable) else ()
    return tuple(part.pattern for part in parts if isinstance(part, WallClock))


def parts_of(instants: Instants) -> Iterator[Instants]:
    """Yield the instants inside `Bounded` and `Merged`."""
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
