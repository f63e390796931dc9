"""Refused messages do not run, end with a reason, and their payload appears nowhere."""

from __future__ import annotations

import base64
import json
import os
import pickle
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.worker.worker_world import Works, wait_for

from detent.manifest.secret_refs import Secret
from detent.messages.envelope import MessageBody, Sealer
from detent.messages.message import MessageOptions, PushContext, message
from detent.model import Fire

SIGNED = (Secret("the secret of the tests"),)
MARK = "do-not-tell"  # in each payload


class Bomb:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {MARK}",)


def make(works: Works, task: str = "quick", **options: Any) -> Fire:
    context = PushContext(works.name, datetime.now(UTC), secrets.token_hex(8))
    return message(
        works.app.tasks()[task], json.dumps(["give", MARK]), MessageOptions(**options), context, SIGNED
    )


def forged(works: Works) -> Fire:
    fire = make(works)
    return fire._replace(payload=fire.payload.replace(MARK, MARK + "!"))


def altered(works: Works) -> Fire:
    fire = make(works)
    return fire._replace(policy=fire.policy._replace(timeout_s=9999.0))


def unsigned(works: Works) -> Fire:
    fire = make(works)
    body = MessageBody("quick", json.dumps(["give", MARK]), fire.due_at.timestamp())
    return fire._replace(payload=Sealer(fire, body, ()).seal(fire.key, fire.run_id, body.args))


def replayed(works: Works) -> Fire:
    return make(works)._replace(key=f"{works.name}.quick#{secrets.token_hex(8)}")


def misplaced(works: Works) -> Fire:
    return make(works, "stormy", queue="q")


def oversized(works: Works) -> Fire:
    fire = make(works)
    return fire._replace(payload=fire.payload.replace(MARK, MARK * 30_000))


def truncated(works: Works) -> Fire:
    fire = make(works)
    return fire._replace(payload=fire.payload[:-20])


def stale(works: Works) -> Fire:
    """A genuine message that is inserted again after its row was pruned."""
    context = PushContext(works.name, datetime.now(UTC) - timedelta(days=31), secrets.token_hex(8))
    return message(works.app.tasks()["quick"], json.dumps(["give", MARK]), MessageOptions(), context, SIGNED)


def pickled(works: Works) -> Fire:
    return make(works)._replace(payload=base64.b64encode(pickle.dumps(Bomb())).decode())


BAD: dict[str, Callable[[Works], Fire]] = {
    "forged": forged,
    "forged: ": altered,
    "unsigned": unsigned,
    "misdirected": replayed,
    "stale": stale,
    "not-allowed": misplaced,
    "oversized": oversized,
    "malformed": truncated,
    "malformed:": pickled,
}


def test_a_message_that_may_not_run_ends_rejected_with_its_reason(any_works: Works) -> None:
    works = any_works
    fires = {reason: make(works) for reason, make in BAD.items()}
    assert works.app.open_store().put([*fires.values()]) == [True] * len(fires)
    good = works.tasks.quick.push("give", 1)
    worker = works.start(concurrency=4, processes=1)
    works.wait_over([good])
    assert good.get(30) == 1
    dead = {one.key: one for one in works.app.queue("q").dead()}
    for reason, fire in fires.items():
        assert dead[fire.key].state == "rejected" and dead[fire.key].reason.startswith(reason), reason
        assert dead[fire.key].attempts == 0
        events = wait_for(lambda key=fire.key: worker.events("app-rejected", fire=key))  # type: ignore[misc]
        assert len(events) == 1 and events[0]["reason"] == dead[fire.key].reason
    assert [one.key for one in works.starts()] == [good.key]
    assert MARK not in worker.log.read_text()
    assert not any((place / MARK).exists() for place in (works.directory, works.witness.parent))
