"""Nodes with one planted bug, which the judge must find: `python -m tests.chaos.planted NAME run FILE …`.

Each patches one thing in the node, in a script of the store, or in the warden (`planted_warden.py`), and
then calls the command line.  detent itself has no switch for any of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from detent import clock
from detent.cli.main import main as detent
from detent.errors import StoreUnavailable
from detent.model import Ask, Claim, End, Grants, Outcome, Report, Verdict
from detent.node import attempt, node
from detent.rules import settling
from detent.stores.engine import engine, planning
from detent.stores.engine.unit import Unit
from detent.stores.redis import session
from detent.stores.redis.link import SCRIPTS, Script
from detent.stores.redis.store import RedisStore
from detent.warden import client

WARDEN = """
import sys
sys.path[:0] = {path!r}
import os
import planted_warden
from program import loop, reaper
planted_warden.PLANTED[{name!r}]()
reaper.start_reaper(os.environ["DETENT_NODE"])
sys.exit(loop.main(sys.argv[1:]))
"""


class Planted(NamedTuple):
    """A planted bug, and the faults under which it shows."""

    meaning: str
    plant: Callable[[], None]
    under: frozenset[str]


def _change_script(*changes: tuple[str, str]) -> None:
    whole = session.script_of

    @cache
    def changed(verb: str) -> Script:
        script = whole(verb)
        text = script.text
        for old, new in changes:
            text = text.replace(old, new)
        return Script(text)

    every = "".join(whole(name).text for name in SCRIPTS)
    assert all(old in every for old, _ in changes), "the script does not say that any more"
    session.script_of = changed  # type: ignore[assignment]


# Of the store.


def finish_is_not_fenced() -> None:
    fenced = engine.finish

    def trusting(unit: Unit, report: Report) -> Verdict | None:
        record = unit.records.get(report.claim.fire.key)
        claim = report.claim._replace(fence=record.fence) if record else report.claim
        return fenced(unit, report._replace(claim=claim))

    engine.finish = trusting


def a_known_key_is_recorded_again() -> None:
    _change_script(("if string.sub(text or", 'if expected ~= "0 " and string.sub(text or'))
    resumed = planning.resume_at
    planning.resume_at = lambda now, ended, _, first: resumed(now, ended, None, first)


def a_step_of_the_stores_clock_expires_claims() -> None:
    _change_script(("step, is_doubtful = step_of(moved)", "step, is_doubtful = 0, false"))


def the_nodes_clock_is_trusted() -> None:
    begin: Any = RedisStore.__init__

    def trusting(self: RedisStore, url: str, *given: Any) -> None:
        begin(self, url, *given, wall=clock.wall)

    RedisStore.__init__ = trusting  # type: ignore[method-assign, assignment]


# Of the node.


def the_client_repeats_claims() -> None:
    """Repeat a request like a client library does by default, each time under a new number."""
    claim, numbers = RedisStore.claim, count(1)

    def repeating(self: RedisStore, ask: Ask) -> Grants:
        for _ in range(3):
            try:
                return claim(self, ask._replace(number=next(numbers)))
            except StoreUnavailable:
                continue
        return claim(self, ask._replace(number=next(numbers)))

    RedisStore.claim = repeating  # type: ignore[method-assign]


def a_claim_is_trusted_from_its_answer() -> None:
    begin = attempt.HeldClaim.__init__

    def late(self: attempt.HeldClaim, claim: Claim, _: float) -> None:
        begin(self, claim, clock.boottime())

    def renew(self: attempt.HeldClaim, _: float) -> None:
        self.renewed = clock.boottime()
        if self.running:
            self.running.extend(self.trusted_by)

    node.HeldClaim.__init__ = late  # type: ignore[method-assign]
    node.HeldClaim.renew = renew  # type: ignore[method-assign]


def a_stopped_warden_is_only_counted_out() -> None:
    client.WardenClient._overdue_in_s = lambda self: math.inf  # type: ignore[method-assign]


def lost_work_is_reported_as_done() -> None:
    settle = settling.settle

    def lying(end: End, claim: Claim, rng: Any) -> Any:
        return settle(
            end._replace(outcome=Outcome("succeeded")) if end.outcome.kind == "lost" else end, claim, rng
        )

    attempt.settle = settling.settle = lying


# Of the warden.


def _in_the_warden() -> None:
    """Write the patched warden beside the node's manifest."""
    name, file = sys.argv[1], Path(sys.argv[3])
    program = file.with_name("planted-warden.py")
    path = [str(client.WARDEN.parent), str(Path(__file__).parent)]
    program.write_text(WARDEN.format(path=path, name=name))
    client.WARDEN = program


_DEATHS = frozenset({"kill node", "kill both", "kill warden", "stop node"})
_PARTITIONS = frozenset({"cut", "black hole", "stop node"})
PLANTED = {
    "finish-not-fenced": Planted(
        "a report is taken though another claim has the fire", finish_is_not_fenced, _PARTITIONS
    ),
    "known-key-again": Planted(
        "an instant that was launched is recorded again",
        a_known_key_is_recorded_again,
        frozenset({"step store clock", "deploy"}),
    ),
    "step-expires-claims": Planted(
        "a step of the store's clock expires claims",
        a_step_of_the_stores_clock_expires_claims,
        frozenset({"step store clock"}),
    ),
    "node-clock-trusted": Planted(
        "a node's clock says what is due and expired",
        the_nodes_clock_is_trusted,
        frozenset({"step clock", "drift clock"}),
    ),
    "client-repeats-claims": Planted(
        "the client asks again by itself, as another ask",
        the_client_repeats_claims,
        frozenset({"lose answers"}),
    ),
    "trusted-from-answer": Planted(
        "a claim is trusted from its answer, not from its request",
        a_claim_is_trusted_from_its_answer,
        frozenset({"delay"}),
    ),
    "no-reaper": Planted(
        "work outlives a node and a warden that are killed at once", _in_the_warden, frozenset({"kill both"})
    ),
    "stopped-warden-kept": Planted(
        "a warden that is stopped lets work outlive its claim",
        a_stopped_warden_is_only_counted_out,
        frozenset({"stop warden", "cut", "black hole"}),
    ),
    "lost-reported-as-done": Planted("lost work is reported as done", lost_work_is_reported_as_done, _DEATHS),
    "parent-death-only": Planted(
        "only the command itself is ended, its children are not", _in_the_warden, _DEATHS
    ),
    "gone-with-its-command": Planted(
        "work counts as gone while its children live", _in_the_warden, frozenset({"kill warden"})
    ),
    "trusted-for-ever": Planted(
        "the warden does not end work whose claim has passed", _in_the_warden, _PARTITIONS
    ),
}


if __name__ == "__main__":
    PLANTED[sys.argv[1]].plant()
    sys.exit(detent(sys.argv[2:]))
