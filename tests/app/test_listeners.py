"""`@app.on` in every process that runs a node of the app."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.app.app_world import APP, World
from tests.equipment.fleet import wait_for

from detent import Detent, UsageError

LISTENS = """

@app.on("failed", "rejected")
def heard(event) -> None:
    note(f"{event['event']} {event['job']} {event['reason']}")


@app.on("failed")
def broken(event) -> None:
    raise ValueError("no such channel")


@app.job("* * * * * *")
def sell() -> None:
    raise RuntimeError("sold out")


@app.task(max_retries=0)
def bill() -> None:
    raise RuntimeError("no money")
"""
RUN = """
if __name__ == "__main__":
    app.run()
"""
EMBED = """
import logging
import signal
if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    app.start()
    signal.sigwait([signal.SIGTERM])
"""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", ["detent", "run", "-f", "shop:app"]),
        (RUN, ["python", "shop.py"]),
        (EMBED, ["python", "shop.py"]),
    ],
    ids=["detent run", "app.run()", "app.start()"],
)
def test_a_listener_hears_of_a_job_that_failed(world: World, more: str, words: list[str]) -> None:
    world.write("shop.py", APP, LISTENS, more)
    with world.running(*words):
        assert world.wait_ticks(1)[0].what == "retries-exhausted sell RuntimeError: sold out"
        wait_for(lambda: "listener-failed" in world.log(), what="the warning")
    assert world.log().count("no such channel") == 1


def test_a_listener_hears_of_a_message_that_failed(world: World) -> None:
    world.write("shop.py", APP, LISTENS)
    assert world.run("detent", "queue", "shop:app", "push", "bill", "[]").returncode == 0
    with world.running("detent", "worker", "shop:app"):
        assert world.wait_ticks(1)[0].what == "retries-exhausted bill RuntimeError: no money"


def test_a_listener_that_cannot_work_is_refused_where_it_is_declared() -> None:
    app = Detent("shop", store="memory:")

    async def sleeps(event: Mapping[str, Any]) -> None: ...

    for names, function, message in (
        (("faild",), print, 'test_listeners.py:.*no event or outcome "faild"; did you mean "failed"'),
        ((), print, "name the events to listen to"),
        (("failed",), sleeps, "a listener is not async"),
    ):
        with pytest.raises(UsageError, match=message):
            app.on(*names)(function)
