"""Alerts of jobs in Python, also within a web process."""

from collections.abc import Iterator

import pytest
from tests.app.app_world import APP, World
from tests.equipment.fleet import wait_for
from tests.equipment.receiver import Receiver

FAILS = """

@app.job("* * * * * *", on_failure=os.environ["OPS"], ping=os.environ["MONITOR"], remind_hours=1)
def sell() -> None:
    raise RuntimeError("sold out")
"""
EMBED = """
import signal
app.start()
signal.sigwait([signal.SIGTERM])
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.mark.parametrize(
    ("more", "words"),
    [("", ["detent", "run", "-f", "shop:app"]), (EMBED, ["python", "shop.py"])],
    ids=["detent run", "app.start()"],
)
def test_a_job_in_python_alerts_once_while_it_fails(
    world: World, receiver: Receiver, more: str, words: list[str]
) -> None:
    world.write("shop.py", APP, FAILS, more)
    world.env |= {
        "OPS": receiver.url.replace("http://", "json://") + "/ops",
        "MONITOR": f"{receiver.url}/ping",
    }
    with world.running(*words):
        wait_for(
            lambda: _paths(receiver).count("/ping/fail") >= 3 and "/ops" in _paths(receiver), what="pings"
        )
    (alert,) = [one for one in receiver.received if one.path == "/ops"]
    assert b"shop.sell: failed" in alert.body and b"RuntimeError: sold out" in alert.body


def _paths(receiver: Receiver) -> list[str]:
    return [one.path for one in receiver.received]
