"""Handles messages whose task this node does not have, for example during a rolling deploy.

The messages wait for a node that has the task.  This node returns them without counting an attempt, and
claims no more of them.  If no live node has the task for `REJECT_AFTER_S`, this node claims the messages
again and rejects them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from detent.messages.envelope import Refusal
from detent.model import Note, Verdict
from detent.rules.settling import RETURN_DELAY_S, refuse, return_claim

REJECT_AFTER_S = 900.0
AGAIN_MAX_S = 60.0  # the longest delay of a returned message


class UnknownTasks:
    def __init__(self) -> None:
        self._since: dict[str, float] = {}  # by app.task: since when no live node is known to have it

    def verdict(self, job: str, why: Refusal, now: float) -> Verdict:
        """Return or reject a message.  A returned one is due again after a delay that grows with the wait."""
        waited_s = now - self._since.setdefault(job, now)
        if waited_s < REJECT_AFTER_S:
            again_in_s = min(max(RETURN_DELAY_S, waited_s), AGAIN_MAX_S)
            return return_claim(why.detail, "not-here")._replace(again_in_s=again_in_s)
        detail = f"{why.detail}, and no live node has had it for {REJECT_AFTER_S / 60:.0f} minutes"
        return refuse(why.fault, detail)

    def excluded(self, now: float) -> set[str]:
        """Return the tasks whose messages this node must not claim now."""
        return {job for job, since in self._since.items() if now - since < REJECT_AFTER_S}

    def learn(self, heartbeats: Sequence[Note], now: float) -> None:
        """Learn from the heartbeats of the live nodes which tasks they have."""
        if self._since:
            nodes = [*map(_tasks_of, heartbeats)]
            for job in self._since:
                task = job.partition(".")[2]
                if any(tasks is None or task in tasks for tasks in nodes):
                    self._since[job] = now

    def __contains__(self, job: str) -> bool:
        return job in self._since


def _tasks_of(heartbeat: Note) -> list[str] | None:
    """Return the tasks of a node.  None: an older version that does not list them, and may have any."""
    try:
        tasks = json.loads(heartbeat.text)["tasks"]
    except (ValueError, TypeError, KeyError):
        return None
    return tasks if isinstance(tasks, list) else None
