"""Builds the page of a chaos run: figures, and a timeline of all work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import NamedTuple

from tests.chaos.evidence import Evidence, Seen
from tests.chaos.faults import Fault
from tests.chaos.gaps import gaps
from tests.chaos.jobs import TRIALS
from tests.chaos.judge import Violation, takeovers


class Frame(Template):
    """A template with another delimiter, because the page's script uses dollar signs."""

    delimiter = "@@"


FRAME = Frame(Path(__file__).with_name("report.html").read_text())
NODES = ("a", "b", "c")
TOP, STRIPS, LINE, GAP = 20, 24, 7, 14  # pixels: the axis; faults of a node; a job; between two nodes
ROW = STRIPS + LINE * len(TRIALS)
HEIGHT = TOP + len(NODES) * (ROW + GAP)
POINT_S = 0.15  # the shortest drawn length
SPEECH_MAX = 200  # violations on the page
STRIP_OF = {"process": 0, "net": 8, "clock": 16}
SHADE_OF = {
    "reset": "net", "lose answers": "net", "cut": "net", "black hole": "net", "delay": "net",
    "step clock": "clock", "drift clock": "clock", "restart store": "store", "stop store": "store",
    "lock store": "store", "quarantine": "store",
    "step store clock": "store", "drift store clock": "store", "deploy": "deploy", "stall": "open",
}  # fmt: skip
KINDS = ("succeeded", "failed", "timed-out", "lost", "replaced", "skipped", "missed", "cancelled")


class Heading(NamedTuple):
    """The header of the page."""

    store: str
    minutes: float
    seed: int
    command: str


def page(heading: Heading, evidence: Evidence, violations: Sequence[Violation]) -> str:
    origin, end = _frame(evidence)
    return FRAME.substitute(
        title=f"Chaos on {heading.store}, seed {heading.seed}",
        subtitle=f"{heading.minutes:g} minutes of faults on three nodes and one store, then none. "
        f"<code>{escape(heading.command)}</code>",
        cards="".join(_cards(evidence, violations)),
        violations=_violations(violations, origin),
        legend="".join(_legend()),
        height=HEIGHT,
        names="".join(_names()),
        picture="".join([*_picture(evidence, origin, end), *_watermarks(violations, origin)]),
        outcomes="".join(_bars(_outcome_bars(evidence))),
        faults="".join(_bars(_fault_bars(evidence))),
        takeovers="".join(_bars(_takeover_bars(evidence))),
        seconds=f"{end - origin:.1f}",
    )


def _frame(evidence: Evidence) -> tuple[float, float]:
    times = [one.at for one in evidence.seen] + [fault.until for fault in evidence.faults]
    return min(times) - 1, max(times) + 2


# Figures.


def _cards(evidence: Evidence, violations: Sequence[Violation]) -> Iterator[str]:
    launched = [*evidence.starts()]
    fires = sum(row.fire.instants for row in evidence.rows if row.fire.origin == "schedule")
    after_s, found = takeovers(evidence), gaps(evidence)
    lives = {one.node for one in launched}
    cards = [
        ("violations", str(len(violations))),
        ("instants accounted for", f"{fires:,}"),
        ("launches", f"{len(launched):,}"),
        ("faults", f"{len(evidence.faults):,}"),
        ("lives of nodes that launched", f"{len(lives):,}"),
        ("median takeover", f"{after_s[len(after_s) // 2]:.1f} s" if after_s else "–"),
        ("longest gap", f"{max((one.length_s for one in found), default=0.0):.1f} s"),
        ("while the store answered", f"{max((one.beyond_s for one in found), default=0.0):.1f} s"),
    ]
    for what, figure in cards:
        state = ("bad" if violations else "good") if what == "violations" else ""
        yield f'<div class="card {state}"><b>{figure}</b><span>{what}</span></div>'


def _violations(violations: Sequence[Violation], origin: float) -> str:
    if not violations:
        return ""
    rows = "".join(
        f"<tr><td>{escape(one.kind)}<td>{_clock(one.at - origin) if one.at else ''}"
        f"<td><code>{escape(one.key)}</code><td>{escape(one.text)}"
        for one in violations[:SPEECH_MAX]
    )
    return f"<h2>Violations</h2><table>{rows}</table>"


def _bars(bars: Iterable[tuple[str, int, str]]) -> Iterator[str]:
    """Yield names, numbers and colours."""
    bars = [*bars]
    most = max((number for _, number, _ in bars), default=1)
    for name, number, colour in bars:
        wide = f"width:{max(100 * number / most, 0.3):.1f}%;--c:var(--{colour})"
        yield f'{escape(name)}<i style="{wide}"></i><span>{number:,}</span>'


def _outcome_bars(evidence: Evidence) -> Iterator[tuple[str, int, str]]:
    found = Counter(row.outcome.kind for row in evidence.rows if row.outcome)
    for kind in KINDS:
        if found[kind]:
            yield kind, found[kind], _colour(kind)


def _fault_bars(evidence: Evidence) -> Iterator[tuple[str, int, str]]:
    for kind, number in Counter(fault.kind for fault in evidence.faults).most_common():
        yield kind, number, SHADE_OF.get(kind, "process")


def _takeover_bars(evidence: Evidence) -> Iterator[tuple[str, int, str]]:
    after_s = takeovers(evidence)
    for least, most in ((0, 1), (1, 2), (2, 4), (4, 6), (6, 10), (10, 20), (20, 1_000)):
        number = sum(least <= one < most for one in after_s)
        if number:
            yield (f"{least}–{most} s" if most < 1_000 else f"over {least} s"), number, "replaced"


# The picture.


def _legend() -> Iterator[str]:
    shown = [(kind, kind) for kind in ("succeeded", "failed", "timed-out", "lost", "replaced")]
    shown += [("process", "processes"), ("net", "network"), ("clock", "clock"), ("store", "store")]
    for colour, name in shown:
        yield f'<span class="key"><i style="--c:var(--{colour})"></i>{name}</span>'


def _names() -> Iterator[str]:
    for number, node in enumerate(NODES):
        y = _row(number)
        yield f'<text class="node" x="10" y="{y + 16}">{node}</text>'
        for line, trial in enumerate(TRIALS):
            yield f'<text class="job" x="86" y="{y + STRIPS + line * LINE + 7}">{escape(trial.name)}</text>'


def _row(number: int) -> int:
    return TOP + number * (ROW + GAP)


def _picture(evidence: Evidence, origin: float, end: float) -> Iterator[str]:
    for number in range(len(NODES)):
        y = _row(number) + STRIPS
        yield _rect("band", 0, end - origin, y, LINE * len(TRIALS), "")
    for fault in evidence.faults:
        yield from _fault(fault, origin)
    lines = {trial.job: line for line, trial in enumerate(TRIALS)}
    for one, until, kind in _works(evidence):
        if one.member in NODES:
            y = _row(NODES.index(one.member)) + STRIPS + lines[one.job] * LINE
            tip = f"{one.key}\nattempt {one.attempt}, fence {one.fence}, {one.node}\n"
            tip += f"{kind}, {until - one.at:.2f} s"
            yield _rect(
                "", one.at - origin, max(until - one.at, POINT_S), y + 1, LINE - 2, tip, _colour(kind)
            )


def _watermarks(violations: Sequence[Violation], origin: float) -> Iterator[str]:
    for one in violations:
        if one.at:
            tip = f"{one.kind}: {one.key}\n{one.text}"
            yield _rect("mark", one.at - origin, POINT_S, TOP, HEIGHT - TOP, tip, "bad")


def _fault(fault: Fault, origin: float) -> Iterator[str]:
    shade, x = SHADE_OF.get(fault.kind, "process"), fault.at - origin
    wide, tip = (
        max(fault.until - fault.at, POINT_S),
        f"{fault.kind} {fault.target} {fault.detail}\n{_clock(x)}",
    )
    if fault.target in NODES:
        y = _row(NODES.index(fault.target))
        yield _rect("fault", x, wide, y + STRIP_OF[shade] + 1, 6, tip, shade)
        if shade == "process":
            yield _rect("shade", x, wide, y + STRIPS, LINE * len(TRIALS), tip, shade)
    else:
        yield _rect("shade", x, wide, TOP, HEIGHT - TOP - GAP, tip, shade)


def _works(evidence: Evidence) -> Iterator[tuple[Seen, float, str]]:
    """Yield each launch with its end and outcome; for killed work, as the store recorded it."""
    ends = {(one.key, one.attempt, one.node): one.at for one in evidence.seen if one.what == "end"}
    attempts: Mapping[tuple[str, int], tuple[float, str]] = {
        (row.fire.key, one.number): (evidence.clock.when(one.ended_at.timestamp()), one.outcome.kind)
        for row in evidence.rows
        for one in row.attempts
    }
    places: dict[tuple[str, int], float] = {}  # the next start in the same place of a lane
    for one in sorted(evidence.starts(), key=lambda one: -one.at):
        recorded, kind = attempts.get((one.key, one.attempt), (one.at + POINT_S, "open"))
        following = places.get((one.job, one.place), float("inf"))
        until = ends.get((one.key, one.attempt, one.node), min(recorded, following))
        places[one.job, one.place] = one.at
        yield one, max(until, one.at + 0.02), kind


def _colour(kind: str) -> str:
    return kind if kind in ("succeeded", "failed", "timed-out", "lost", "replaced", "cancelled") else "open"


def _rect(of: str, x: float, wide: float, y: float, high: float, tip: str, colour: str = "") -> str:
    look = f' fill="var(--{colour})"' if colour else ""
    return (
        f'<rect class="{of}" x="{x:.2f}" y="{y:g}" width="{wide:.2f}" height="{high:g}"{look}'
        + (f' data-t="{escape(tip)}"' if tip else "")
        + "/>"
    )


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{seconds % 60:04.1f}"
