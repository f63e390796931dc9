"""The grammar of one cron field: parses text to a bit mask and special days.

- A field is a list of `*`, values and ranges `a-b`, each with an optional step `/n`.  A value with a step
  runs to the end of the field.  Months and weekdays have names; case does not matter.
- `?` means `*` in the two day fields.  A field that starts with `*` or `?` is open (Vixie's rule).
- A backwards range (`FRI-MON`) is refused, as in Vixie cron: other schedulers would not accept it.
- Version 2 adds 7 for Sunday, `L`, `LW`, `15W`, `5#2`, `5L`, and `H`, `H/n`, `H(a-b)`: a value derived from
  the name of the job, so that not all jobs of a fleet fire in the same minute.
- A mistake raises a `UsageError` that names the field and the text.  The caller adds the schedule.
"""

from typing import Literal, NamedTuple

from detent.errors import UsageError
from detent.text import listed, quote

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
HASHED_DAY_MAX = 28  # `H` as a day of the month is one that every month has


class Range(NamedTuple):
    """The name of a field and its allowed values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # the first one means `low`


SECOND = Range("second", 0, 59)
MINUTE = Range("minute", 0, 59)
HOUR = Range("hour", 0, 23)
DAY_OF_MONTH = Range("day of month", 1, 31)
MONTH = Range("month", 1, 12, MONTHS)
DAY_OF_WEEK = Range("day of week", 0, 6, WEEKDAYS)
SPECIAL_FORMS = {DAY_OF_MONTH.name: ("L", "LW", "15W"), DAY_OF_WEEK.name: ("5#2", "5L")}


class Special(NamedTuple):
    """A day that differs from month to month."""

    kind: Literal["last", "last-weekday", "nearest-weekday", "nth", "last-of"]
    day: int = 0  # of the month for nearest-weekday, of the week for nth and last-of
    nth: int = 0


class Field(NamedTuple):
    """A parsed field: bit v of the mask is set if value v matches."""

    text: str
    mask: int
    is_open: bool = True  # starts with `*` or `?`
    specials: tuple[Special, ...] = ()


class Grammar(NamedTuple):
    version: int = 2
    seed: str = ""  # `H` depends on it


def parse_field(text: str, within: Range, grammar: Grammar) -> Field:
    mask, specials = 0, []
    for item in text.upper().split(","):
        special = parse_special(item, within, grammar)
        if special is None:
            mask |= parse_item(item, within, grammar)
        else:
            _require_version_2(item, within, grammar)
            specials.append(special)
    return Field(text, mask, text.startswith(("*", "?")), tuple(sorted(specials)))


def parse_special(item: str, within: Range, grammar: Grammar) -> Special | None:
    """Parse a special day; return None for any other item."""
    if within is DAY_OF_MONTH and item.endswith(("L", "W")):
        if item in ("L", "LW"):
            return Special("last" if item == "L" else "last-weekday")
        return (
            Special("nearest-weekday", parse_value(item[:-1], within, grammar)) if item[-1] == "W" else None
        )
    if within is not DAY_OF_WEEK:
        return None
    day, sharp, nth = item.partition("#")
    if sharp:
        if nth not in ("1", "2", "3", "4", "5"):
            raise UsageError(f"day of week {quote(item)}: the number after # is not in 1–5")
        return Special("nth", parse_value(day, within, grammar) % 7, int(nth))
    if item.endswith("L") and item != "L":
        return Special("last-of", parse_value(item[:-1], within, grammar) % 7)
    return None


def parse_item(item: str, within: Range, grammar: Grammar) -> int:
    body, slash, step_text = item.partition("/")
    step = _parse_step(step_text, within) if slash else 1
    if body.startswith("H"):
        _require_version_2(item, within, grammar)
        low, high = _hashed(body, step if slash else 0, within, grammar)
    elif body == "*" or (item == "?" and within in (DAY_OF_MONTH, DAY_OF_WEEK)):
        low, high = within.low, within.high
    elif "-" in body:
        low, high = _parse_range(body, within, grammar)
    else:
        low = parse_value(body, within, grammar)
        high = max(low, within.high) if slash else low
    values = range(low, high + 1, step)
    return sum({1 << (value % 7 if within is DAY_OF_WEEK else value) for value in values})  # 7 is Sunday too


def parse_value(text: str, within: Range, grammar: Grammar) -> int:
    if text in within.names:
        return within.names.index(text) + within.low
    if not (text.isascii() and text.isdigit()):
        raise UsageError(_not_a_value(text, within, grammar))
    value, high = int(text), within.high
    if within is DAY_OF_WEEK and grammar.version >= 2:
        high = 7
    if not within.low <= value <= high:
        hint = "; Sunday is 0" if within is DAY_OF_WEEK and value == 7 else ""
        raise UsageError(f"{within.name} {value} is not in {within.low}–{high}{hint}")
    return value


def _not_a_value(text: str, within: Range, grammar: Grammar) -> str:
    if not text:
        return f"{within.name} has an empty item"
    if text == "?":
        return f"? means * in the two day fields only, not in the {within.name}"
    allowed = [f"a number in {within.low}–{within.high}"]
    if within.names:
        allowed.append(f"a name {within.names[0]}–{within.names[-1]}")
    if grammar.version >= 2:
        allowed.extend(SPECIAL_FORMS.get(within.name, ()))
    return f"{within.name} {quote(text)} is not {listed(allowed)}"


def _parse_step(text: str, within: Range) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise UsageError(f"{within.name} step {quote(text)} is not a number of 1 or more")
    return int(text)


def _parse_range(body: str, within: Range, grammar: Grammar) -> tuple[int, int]:
    first, _, last = body.partition("-")
    low, high = parse_value(first, within, grammar), parse_value(last, within, grammar)
    if low > high:
        named = within.names and not first.isdigit()
        top = within.names[-1] if named else str(within.high)
        bottom = within.names[0] if named else str(within.low)
        instead = f"{first}-{top},{bottom}-{last}"
        raise UsageError(f"{within.name} range {body} runs backwards; write {instead}")
    return low, high


def _hashed(body: str, step: int, within: Range, grammar: Grammar) -> tuple[int, int]:
    """Return the first and last value of an `H`; without a step they are equal."""
    low, high = within.low, within.high
    if within is DAY_OF_MONTH:
        high = HASHED_DAY_MAX
    if body != "H":
        if not (body.startswith("H(") and body.endswith(")") and "-" in body):
            raise UsageError(f"{within.name} {quote(body)} is not H, H/n, H(a-b) or H(a-b)/n")
        low, high = _parse_range(body[2:-1], within, grammar)
    spread = _hash(grammar.seed, within.name)
    width = high - low + 1
    if step:
        return low + spread % min(step, width), high
    return (low + spread % width,) * 2


def _hash(seed: str, name: str) -> int:
    from hashlib import sha256  # slow to import, and only `H` needs it

    return int.from_bytes(sha256(f"{seed}/{name}".encode()).digest()[:8], "big")


def _require_version_2(item: str, within: Range, grammar: Grammar) -> None:
    if grammar.version < 2:
        raise UsageError(f"{within.name} {quote(item)} needs a manifest of version 2")
