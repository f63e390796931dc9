"""Writes the generated parts of docs/reference from the code: fields, limits, verbs, events.

- `python tools/reference.py` updates the pages.  With `--check` it writes nothing, prints the pages that are
  out of date, and exits with 1.
- A part stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`.  The text around it is written
  by hand, and stays.
- The result depends only on the code, not on the version of Python, the terminal or the time.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from detent.cli import main, options
from detent.events import EVENTS
from detent.loading import files
from detent.manifest import canonical, fields, problems
from detent.manifest.shapes import (
    Arguments,
    Boolean,
    Checked,
    Choice,
    Either,
    Field,
    Instant,
    Integer,
    ListOf,
    MapOf,
    Number,
    Record,
    Shape,
    Text,
)
from detent.model import CAUSES
from detent.node import reporting, service
from detent.observe.metrics.series import NODE, STORE, Series
from detent.rules import lanes, planning, settling
from detent.runners import secrets
from detent.runners.call import function
from detent.runners.http import request
from detent.text import NESTING_MAX, plural
from detent.warden.program import output, warm_children

ROOT = Path(__file__).parents[1]
PAGES = tuple(ROOT / "docs" / "reference" / f"{name}.md" for name in ("manifest", "cli", "events", "metrics"))
_PART = re.compile(r"(<!-- generated: ([a-z0-9-]+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def refreshed(page: str) -> str:
    """Return the page with up-to-date generated parts."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n{part[3]}", page)


def table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *(tuple(map(_cell, row)) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(value: Any) -> str:
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


# The manifest.


def field_tables(version: int) -> str:
    """Return one table for the document, one for a job, and one for each mapping with fields."""
    records = {"the document": fields.MANIFEST[version], "a job": fields.JOB[version]}
    records |= {f"`{name}`": record for name, record in _inner(fields.JOB[version])}
    if version > 1:
        records |= {"`store`": fields.STORE, "`node`": fields.NODE}
    return "\n".join(
        f"#### Version {version}: {name}\n\n{field_table(record, version)}"
        for name, record in records.items()
    )


def _inner(record: Record, prefix: str = "") -> Iterator[tuple[str, Record]]:
    for field in record.fields:
        if isinstance(field.shape, Record):
            yield prefix + field.name, field.shape
            yield from _inner(field.shape, f"{prefix}{field.name}.")


def field_table(record: Record, version: int) -> str:
    rows = (
        (f"`{field.name}`", allowed(field.shape), _default(field, record, version), field.about)
        for field in record.fields
    )
    return table(("field", "allowed", "default", "meaning"), rows)


def allowed(shape: Shape) -> str:
    """Describe the values that a shape accepts."""
    match shape:
        case Integer(low, high):
            return _code(low) if low == high else f"a whole number, {_span(low, high)}"
        case Number(low, high):
            return f"a number, {_span(low, high)}"
        case Boolean():
            return "`true` or `false`"
        case Choice(words):
            return ", ".join(_code(word) for word in words)
        case Text(high=high):
            return f"a text of at most {high:,} characters" if shape.allowed == "a text" else shape.allowed
        case Instant():
            return "an instant with its offset, to the second"
        case Checked():
            return allowed(shape.shape)
    return _composed(shape)


def _composed(shape: Shape) -> str:
    match shape:
        case ListOf() if shape.accepts_single:
            return f"a {shape.noun}, or a list of at most {shape.high}; each {allowed(shape.item)}"
        case ListOf():
            count = _span(shape.low, shape.high) if shape.low else f"at most {shape.high}"
            return f"a list of {count} {_plural(shape.noun)}{_each(shape.item)}"
        case Arguments(high):
            return f"a list or a mapping, at most {high:,} characters as JSON"
        case MapOf():
            return f"a mapping of at most {plural(shape.high, shape.noun)}"
        case Either():
            return shape.allowed
        case Record():
            return "a mapping"
    raise AssertionError(f"{type(shape).__name__} has no words")


def _plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def _each(item: Shape) -> str:
    """Describe the items of a list if their noun does not."""
    return f": {allowed(item)}" if isinstance(item, Integer) else ""


def _span(low: float, high: float) -> str:
    return f"{low:,} or more" if high == fields.SECONDS_MAX else f"{low:,}–{high:,}"


def _default(field: Field, record: Record, version: int) -> str:
    if field.name in record.required:
        return "required"
    if field.default is None or isinstance(field.shape, Record):
        return "–"
    other = canonical.COMMAND_POLICY.get(field.name) if version > 1 else None
    return _code(field.default) + (f"; for a command {_code(other)}" if other is not None else "")


def limits() -> str:
    """Return the limits that a user may meet, from the modules that enforce them."""
    kib, mib = 1024, 2**20
    rows = (
        ("size of a manifest file", f"{files.FILE_MAX // mib} MiB"),
        ("nesting of mappings and lists", f"{NESTING_MAX}"),
        ("problems reported at once", f"{problems.PROBLEMS_MAX}"),
        ("how far ahead fires are planned", f"{planning.AHEAD_S:g} s"),
        ("how late a fire may start and still be on time", f"{lanes.LATE_S:g} s"),
        (
            "instants of an outage that run under `catch_up: all`",
            f"the newest {planning.CATCH_UP_MAX['all']}",
        ),
        ("stored output of an attempt", f"the last {output.TAIL_MAX // kib} KiB"),
        ("output of a running command that can be followed", f"2 × {output.SEGMENT_MAX // kib} KiB"),
        ("output in a hook's environment", f"the last {settling.TAIL_MAX // kib} KiB"),
        ("output in an event", f"the last {reporting.EXCERPT_MAX} bytes"),
        ("response to a request", f"{request.BODY_MAX // mib} MiB"),
        ("stored return value of a call", f"{function.RESULT_MAX:,} characters of JSON"),
        ("calls in one warm process", f"{warm_children.CALLS_MAX:,}"),
        ("idle time of a warm process", f"{warm_children.IDLE_S:g} s"),
        ("size of a secret file", f"{secrets.FILE_MAX // kib} KiB"),
        ("time of a hook", f"{planning.HOOK_POLICY.timeout_s:g} s"),
        ("how long a hook, or a fire by hand, waits to start", f"{planning.UNPLANNED_START_S:,.0f} s"),
        ("how often history is pruned", f"every {service.PRUNE_S:g} s"),
        ("rows with `-n`", f"{options.COUNT_MAX:,}"),
    )
    return table(("what", "limit"), iter(rows))


# The commands.


def verbs() -> str:
    return "\n".join(_verb(name) for name in main.VERBS)


def _verb(name: str) -> str:
    parser = main.build_parser(name)
    actions = [action for action in parser._actions if "--help" not in action.option_strings]
    actions.sort(key=lambda action: (bool(action.option_strings), "--output" in action.option_strings))
    usage = " ".join(["detent", name, *(_usage(action) for action in actions if not action.option_strings)])
    rows = (row for action in actions for row in _rows(action))
    examples = "".join(f"$ {example}\n" for example in _examples(parser.epilog or ""))
    arguments = table(("argument", "meaning"), rows)
    return f"### `{usage}`\n\n{parser.description}\n\n{arguments}\n```console\n{examples}```\n"


def _rows(action: argparse.Action) -> Iterator[tuple[str, str]]:
    """An argument; or, where it chooses what is done, each of these with its own arguments."""
    if not isinstance(action, argparse._SubParsersAction):
        yield _given(action), action.help or ""
        return
    about = {choice.dest: choice.help or "" for choice in action._choices_actions}
    for name, parser in action.choices.items():
        own = [one for one in parser._actions if not {"--help", "--output"} & {*one.option_strings}]
        given = " ".join(_usage(one) for one in own if not one.option_strings)
        yield f"`{f'{name} {given}'.strip()}`", about[name]
        for one in own:
            yield f"`{name}`: {_given(one)}", one.help or ""


def _usage(action: argparse.Action) -> str:
    if action.nargs in ("?", "*"):
        return f"[{_name(action)}{' …' if action.nargs == '*' else ''}]"
    return _name(action)


def _name(action: argparse.Action) -> str:
    return str(action.metavar or "|".join(map(str, action.choices or ())))


def _given(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{_name(action)}`"
    value = " | ".join(map(str, action.choices)) if action.choices else action.metavar
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    return f"{names} `{value}`" if action.nargs != 0 else names


def _examples(epilog: str) -> list[str]:
    return re.split(r", (?=detent )", epilog.removeprefix("example: "))


# The events.


def events() -> str:
    rows = ((f"`{name}`", event.level, event.meaning) for name, event in EVENTS.items())
    return table(("event", "level", "meaning"), rows)


def causes() -> str:
    return table(("cause", "meaning"), ((f"`{name}`", meaning) for name, meaning in CAUSES.items()))


# The metrics.


def series(some: tuple[Series, ...]) -> str:
    rows = ((f"`{one.name}`", one.kind, ", ".join(one.labels) or "–", one.help) for one in some)
    return table(("series", "type", "labels", "meaning"), rows)


PARTS: dict[str, Callable[[], str]] = {
    "fields-1": lambda: field_tables(1),
    "fields-2": lambda: field_tables(2),
    "limits": limits,
    "verbs": verbs,
    "events": events,
    "causes": causes,
    "series-node": lambda: series(NODE),
    "series-store": lambda: series(STORE),
}


def stale() -> list[Path]:
    """Return the pages whose generated parts are out of date."""
    return [page for page in PAGES if refreshed(page.read_text()) != page.read_text()]


def run(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Update the generated parts of docs/reference.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if a page is out of date"
    )
    checks, pages = parser.parse_args(words).check, stale()
    state = "is out of date: run python tools/reference.py" if checks else "is written"
    for page in pages:
        print(page.relative_to(ROOT), state)
        if not checks:
            page.write_text(refreshed(page.read_text()))
    return 1 if checks and pages else 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
