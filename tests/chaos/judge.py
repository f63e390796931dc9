"""The judge of a chaos run: compares what the kernel saw with the schedules and with the store's history.

docs/explanation/chaos.md lists the violations.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.evidence import Evidence, Seen
from tests.chaos.faults import Fault
from tests.chaos.gaps import BUDGET_S, gaps
from tests.chaos.jobs import BY_JOB, GUEST, TICK, TRIALS, Trial

from detent.model import Attempt, Row

FAILURES = ("failed", "rejected", "timed-out", "lost", "missed")
EARLY_S = 0.05  # clocks are not read at the same time
GRANTED_S = 8.0  # the longest time between a grant and the start of its work
AFTERMATH_S = 8.0  # how long after a missed renewal a claim is found expired
HARMLESS = {
    "step clock", "drift clock", "step store clock", "drift store clock", "deploy", "reset", "lose answers",
}  # fmt: skip


class Violation(NamedTuple):
    kind: str
    key: str
    text: str
    at: float = 0.0  # of the monotonic clock, if known


def judge(evidence: Evidence) -> list[Violation]:
    return [violation for rule in RULES for violation in rule(evidence)]


# From the kernel.


def _overlaps(evidence: Evidence) -> Iterator[Violation]:
    for one in evidence.starts():
        if one.place < 0:
            yield Violation("overlap", one.key, f"by {one.node}, while another had its lane", one.at)


def _duplicates(evidence: Evidence) -> Iterator[Violation]:
    for key, launches in _by_key(evidence.starts()).items():
        numbers = [one.attempt for one in launches]
        for number, times in Counter(numbers).items():
            if times > 1:
                nodes = [f"{one.node} with {one.fence}" for one in launches if one.attempt == number]
                yield Violation("duplicate", key, f"attempt {number} by {nodes}", launches[-1].at)
        if max(numbers) > _trial(key).attempts_max:
            yield Violation("duplicate", key, f"attempt {max(numbers)}", launches[-1].at)
        if len({one.run_id for one in launches}) > 1:
            yield Violation("duplicate", key, "under two run ids", launches[-1].at)
    hooks = Counter(one.key for one in evidence.seen if one.what == "hook")
    yield from (Violation("duplicate", key, f"its hook, {n} times") for key, n in hooks.items() if n > 1)


def _fences(evidence: Evidence) -> Iterator[Violation]:
    """Fences grow with every launch of a fire and, if its width is 1, of a lane."""
    groups = [*_by_key(evidence.starts()).values()]
    for trial in TRIALS:
        if trial.width == 1:
            groups.append([one for one in evidence.starts() if one.job == trial.job])
    for group in groups:
        for earlier, later in pairwise(group):
            if later.fence <= earlier.fence:
                yield Violation("fence", later.key, f"{later.fence} after {earlier.fence}", later.at)


def _early(evidence: Evidence) -> Iterator[Violation]:
    for one in evidence.starts():
        latest = evidence.clock.latest(one.at, GRANTED_S)
        if _due(one.key) > latest + EARLY_S:
            yield Violation("early", one.key, f"{_due(one.key) - latest:.2f} s before it was due", one.at)


def _silences(evidence: Evidence) -> Iterator[Violation]:
    for one in gaps(evidence):
        if one.beyond_s > BUDGET_S:
            text = f"no launch for {one.length_s:.1f} s, {one.beyond_s:.1f} s of it while the store answered"
            yield Violation("silence", TICK, text, one.since)


# From the store.


def _losses(evidence: Evidence) -> Iterator[Violation]:
    """Every instant of a schedule is recorded, alone or in a span."""
    keys = {row.fire.key for row in evidence.rows}
    spans = [row.fire for row in evidence.rows if row.fire.instants > 1 and row.fire.first_at]
    for trial in TRIALS:
        covered = [(one.first_at.timestamp(), one.due_at.timestamp()) for one in spans  # type: ignore[union-attr]
                   if one.job == trial.job]  # fmt: skip
        for second in (
            trial.instants(evidence.began_at, evidence.faults_ended_at) if trial.name != GUEST else ()
        ):
            if _key(trial, second) not in keys and not any(a <= second <= b for a, b in covered):
                yield Violation("loss", _key(trial, second), "is not recorded", evidence.clock.when(second))


def _strays(evidence: Evidence) -> Iterator[Violation]:
    """Nothing is recorded or launched that no schedule names."""
    for row in evidence.rows:
        if row.fire.origin == "schedule" and not _trial(row.fire.key).is_instant(_second(row.fire.due_at)):
            yield Violation("stray", row.fire.key, "is no instant of its schedule")
    keys = {row.fire.key for row in evidence.rows}
    for one in evidence.starts():
        if one.key not in keys:
            yield Violation("stray", one.key, f"was launched by {one.node} without a record", one.at)


def _unsettled(evidence: Evidence) -> Iterator[Violation]:
    for row in evidence.rows:
        if row.state != "over" and row.fire.due_at.timestamp() <= evidence.faults_ended_at:
            yield Violation("unsettled", row.fire.key, f"is {row.state}, attempt {row.attempt}")


def _lies(evidence: Evidence) -> Iterator[Violation]:
    launches, ends = _by_key(evidence.starts()), _by_attempt(evidence, "end")
    for row in (row for row in evidence.rows if row.fire.origin == "schedule"):
        key, recorded = row.fire.key, {one.number: one for one in row.attempts}
        launched = {one.attempt: one for one in launches.get(key, ())}
        if row.outcome and row.outcome.kind in ("skipped", "missed") and launched:
            yield Violation("lie", key, f"was launched, and is {row.outcome}", min(launched.values()).at)
        for number, one in recorded.items():
            yield from _lie_of(key, one, launched.get(number), ends.get((key, number)))
        for number in launched.keys() - recorded.keys() if row.state == "over" else ():
            text = f"attempt {number} is not recorded: {row.outcome}"
            yield Violation("lie", key, text, launched[number].at)


def _lie_of(key: str, attempt: Attempt, start: Seen | None, end: Seen | None) -> Iterator[Violation]:
    kind, at = attempt.outcome.kind, start.at if start else 0.0
    if start and (start.fence, start.node) != (attempt.fence, attempt.node):
        seen, said = (start.fence, start.node), (attempt.fence, attempt.node)
        yield Violation("lie", key, f"attempt {attempt.number} was {seen} and is recorded as {said}", at)
    if kind == "succeeded" and (end is None or end.status):
        yield Violation(
            "lie", key, f"attempt {attempt.number} is recorded as succeeded, but did not end with success", at
        )
    if kind == "failed" and (end is None or not end.status):
        yield Violation(
            "lie", key, f"attempt {attempt.number} {attempt.outcome.reason}, but did not fail", at
        )
    if kind == "timed-out" and not _trial(key).policy.get("timeout_seconds"):
        yield Violation("lie", key, "timed out without a time limit", at)


def _relaunches(evidence: Evidence) -> Iterator[Violation]:
    """Another attempt follows only if the policy allows it after that outcome."""
    rows = {row.fire.key: row for row in evidence.rows}
    for key, launches in _by_key(evidence.starts()).items():
        outcomes = {one.number: one.outcome.kind for one in rows[key].attempts} if key in rows else {}
        for one in launches[1:]:
            before, trial = outcomes.get(one.attempt - 1, "nothing"), _trial(key)
            retries = before in ("failed", "timed-out") and "retries" in trial.policy
            if not retries and not (before == "lost" and trial.reruns):
                yield Violation("duplicate", key, f"attempt {one.attempt} after {before}", one.at)


def _groundless(evidence: Evidence) -> Iterator[Violation]:
    """Work was given up although nothing kept its node from renewing."""
    starts = _by_attempt(evidence, "start")
    for row in evidence.rows:
        for one in row.attempts if row.fire.origin == "schedule" else ():
            if one.outcome.kind != "lost":
                continue
            start = starts.get((row.fire.key, one.number))
            began = start.at if start else evidence.clock.when(one.started_at.timestamp())
            ended = evidence.clock.when(one.ended_at.timestamp())
            if not any(_excuses(fault, one.node, began, ended) for fault in evidence.faults):
                text = f"attempt {one.number} of {one.node}: {one.outcome.reason}, for nothing"
                yield Violation("groundless", row.fire.key, text, began)


def _excuses(fault: Fault, life: str, began: float, ended: float) -> bool:
    concerns = fault.target in ("store", "fleet", life.partition(".")[0])
    return (
        fault.kind not in HARMLESS
        and concerns
        and fault.at <= max(began, ended)
        and fault.until >= began - AFTERMATH_S
    )


def _unhooked(evidence: Evidence) -> Iterator[Violation]:
    keys = {row.fire.key for row in evidence.rows}
    for row in evidence.rows if evidence.hooks else ():
        if row.fire.origin != "schedule" or not row.outcome or not _trial(row.fire.key).hook:
            continue
        if row.outcome.kind in FAILURES and f"{row.fire.key}/on_failure" not in keys:
            yield Violation("loss", row.fire.key, f"is {row.outcome.kind}, but its hook was not put")


# From the nodes' events.


def _reported_twice(evidence: Evidence) -> Iterator[Violation]:
    reports = Counter(one["fire"] for one in evidence.events if "outcome" in one and "fire" in one)
    yield from (Violation("reported twice", key, f"{n} times") for key, n in reports.items() if n > 1)


def _broken(evidence: Evidence) -> Iterator[Violation]:
    yield from (Violation("trouble", "", text) for text in evidence.broken)
    for one in evidence.events:
        if one["event"] == "internal-error":
            yield Violation("trouble", one.get("fire", ""), f"{one['node']}: {one['error']}")


RULES: Sequence[Callable[[Evidence], Iterator[Violation]]] = (
    _overlaps,
    _duplicates,
    _relaunches,
    _fences,
    _early,
    _silences,
    _losses,
    _strays,
    _unsettled,
    _lies,
    _groundless,
    _unhooked,
    _reported_twice,
    _broken,
)


def takeovers(evidence: Evidence) -> list[float]:
    """Return how long after a kill the lane of the killed work ran again."""
    found = []
    for fault in (one for one in evidence.faults if one.kind in ("kill node", "kill both")):
        for trial in (one for one in TRIALS if one.width == 1):
            lane = [one for one in evidence.seen if one.job == trial.job and one.what in ("start", "end")]
            before = [one for one in lane if one.at <= fault.at]
            after = [one for one in lane if one.at > fault.at and one.what == "start"]
            if before and after and before[-1].what == "start" and before[-1].member == fault.target:
                found.append(after[0].at - fault.at)
    return sorted(found)


def _by_key(seen: Iterator[Seen]) -> dict[str, list[Seen]]:
    groups: dict[str, list[Seen]] = defaultdict(list)
    for one in seen:
        groups[one.key].append(one)
    return groups


def _by_attempt(evidence: Evidence, what: str) -> dict[tuple[str, int], Seen]:
    return {(one.key, one.attempt): one for one in evidence.seen if one.what == what}


def _trial(key: str) -> Trial:
    return BY_JOB[key.partition("@")[0]]


def _key(trial: Trial, second: int) -> str:
    return f"{trial.job}@{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _due(key: str) -> float:
    return datetime.strptime(key.partition("@")[2][:20], "%Y-%m-%dT%H:%M:%S%z").timestamp()


def _second(due_at: datetime) -> int:
    return int(due_at.timestamp())


def outcomes(rows: Sequence[Row]) -> Counter[str]:
    """Count outcomes of scheduled instants; a span counts as all its instants."""
    found: Counter[str] = Counter()
    for row in rows:
        if row.fire.origin == "schedule" and row.outcome:
            found[row.outcome.kind] += row.fire.instants
    return found
