"""Messages of a task that a node does not have: they wait, and are rejected when no live node has it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from detent.messages.envelope import Refusal
from detent.messages.message import MessageOptions, PushContext, Task, message
from detent.model import Call, Note, Query
from detent.node.node import Node
from detent.testing.sim.fleet import APP, Fleet, Sim
from detent.worker.inbox import Inbox
from detent.worker.unknown_tasks import AGAIN_MAX_S, REJECT_AFTER_S, UnknownTasks

JOB, WHY = "shop.send", Refusal("unknown-task", 'this node has no task "send"')


def heartbeat(text: str) -> Note:
    return Note("node/n1", text, datetime.now(UTC))


def test_a_message_of_an_unknown_task_is_returned_and_not_claimed_again() -> None:
    unknown = UnknownTasks()
    assert JOB not in unknown and unknown.excluded(100.0) == set()
    verdict = unknown.verdict(JOB, WHY, 100.0)
    assert (verdict.again_in_s, verdict.counts) == (1.0, False)
    assert JOB in unknown and unknown.excluded(100.0) == {JOB}


@pytest.mark.parametrize(("waited_s", "again_in_s"), [(0.5, 1.0), (8.0, 8.0), (500.0, AGAIN_MAX_S)])
def test_the_delay_grows_with_the_wait_up_to_a_limit(waited_s: float, again_in_s: float) -> None:
    unknown = UnknownTasks()
    unknown.verdict(JOB, WHY, 100.0)
    assert unknown.verdict(JOB, WHY, 100.0 + waited_s).again_in_s == again_in_s


def test_a_message_is_rejected_once_no_live_node_has_had_its_task_for_long_enough() -> None:
    unknown = UnknownTasks()
    unknown.verdict(JOB, WHY, 0.0)
    unknown.learn([heartbeat(json.dumps({"tasks": ["other"]}))], 10.0)
    assert unknown.excluded(REJECT_AFTER_S) == set()
    verdict = unknown.verdict(JOB, WHY, REJECT_AFTER_S)
    assert verdict.again_in_s is None and verdict.outcome.kind == "rejected"
    reason = 'unknown-task: this node has no task "send", and no live node has had it for 15 minutes'
    assert verdict.outcome.reason == reason


@pytest.mark.parametrize(
    "text", [json.dumps({"tasks": ["send"]}), json.dumps({"queues": ["default"]}), "no heartbeat"]
)
def test_a_message_waits_while_a_live_node_has_its_task_or_may_have_it(text: str) -> None:
    unknown = UnknownTasks()
    unknown.verdict(JOB, WHY, 0.0)
    unknown.learn([heartbeat(text)], 800.0)
    assert unknown.excluded(800.0 + REJECT_AFTER_S - 1) == {JOB}
    assert unknown.verdict(JOB, WHY, 800.0 + REJECT_AFTER_S - 1).again_in_s is not None
    assert unknown.verdict(JOB, WHY, 800.0 + REJECT_AFTER_S).again_in_s is None


class Worker(Node):
    """A node that serves messages, and has no task at all."""

    def __init__(self, *given: Any) -> None:
        instance, app, jobs, ports, tuning = given
        super().__init__(instance, app, jobs, ports._replace(inbox=Inbox({})), tuning)


class Deploy(Sim):
    """A message is pushed whose task the only node does not have."""

    key = ""

    def put(self) -> None:
        fire = message(Task("send", Call("")), "[]", MessageOptions(), PushContext(APP, self.now(), "1"), ())
        self.key = fire.key
        self.store.put([fire])
        self.store.shadow.pushed.add(fire.key)


def test_a_node_rejects_messages_after_it_waited_for_their_task() -> None:
    sim = Deploy(1, "calm", hours=0.4, fleet=Fleet((1, 1), jobs=0, room=8), node_type=Worker)
    sim.define("skip", 86_400)
    sim.loop.call_later(100.0, sim.put)
    sim.run()
    [row] = sim.store.find(Query(key=sim.key))
    assert row.outcome and row.outcome.kind == "rejected" and "for 15 minutes" in row.outcome.reason
    assert row.over_at and (row.over_at - row.fire.due_at).total_seconds() >= REJECT_AFTER_S
