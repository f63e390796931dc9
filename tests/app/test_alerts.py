"""Alerts of jobs in Python, also within a web process."""

from collections.abc import Iterator

import pytest
from tests.app.app_world import APP, World
from tests.equipment.fleet import wait_for
from tests.equipment.receiver import Receiver

FAILS = """

@app.job("* * * * * *", on_failure=os.environ["OPS"], ping=os.environ["MONITOR"], remind_hours=1)
def sell() -> None:
    raise RuntimeError("sold out: " + os.environ["OPS"])
"""
SECRET = "s3cretpassw0rd"
TOKEN = "Zz9Yy8Xx7Ww6Vv5U"
EMBED = """
import logging, signal
logging.basicConfig(level=logging.DEBUG)
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
def test_a_job_in_python_alerts_once_while_it_fails_and_nothing_has_its_secrets(
    world: World, receiver: Receiver, more: str, words: list[str]
) -> None:
    world.write("shop.py", APP, FAILS, more)
    world.env |= {
        "OPS": receiver.url.replace("http://", f"json://robot:{SECRET}@") + f"/ops/{TOKEN}",
        "MONITOR": f"{receiver.url}/ping",
    }
    with world.running(*words):
        wait_for(
            lambda: _paths(receiver).count("/ping/fail") >= 3 and f"/ops/{TOKEN}" in _paths(receiver),
            what="pings",
        )
    (alert,) = [one for one in receiver.received if one.path == f"/ops/{TOKEN}"]
    assert b"shop.sell: failed" in alert.body and b"RuntimeError: sold out: ***" in alert.body
    kept = [path.read_text(errors="replace") for path in world.folder.glob("*") if path.is_file()]
    assert "sold out" in world.log() and not any(secret in one for one in kept for secret in (SECRET, TOKEN))


def _paths(receiver: Receiver) -> list[str]:
    return [one.path for one in receiver.received]
