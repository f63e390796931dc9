"""Two servers with shared receipts run each fire once, even if processes die or requests arrive late."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.equipment.fleet import PATIENCE_S, wait_for
from tests.receive.receive_world import SECRET, Server, claim_of, fire, incoming, runs, serving

from detent.model import End, Outcome
from detent.receive import ReceivedFire, Receiver, Reply

SUCCEEDED = Outcome("succeeded")


class Pair:
    """Two servers of one app, of different kinds."""

    def __init__(self, servers: list[Server], folder: Path, key: str) -> None:
        self.servers, self.folder, self.key = servers, folder, key

    def fire(self, number: int, job: str = "slow", key: str = "", fence: int = 7, attempt: int = 1) -> End:
        claim = claim_of(job, key=self.key + key, fence=fence, attempt=attempt)
        return fire(f"{self.servers[number % 2].url}/cron/{job}", claim=claim)

    def runs(self, key: str = "") -> int:
        return sum(line.startswith(f"{self.key}{key} ") for line in runs(self.folder))

    def go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def lease() -> str:
    return "600"


@pytest.fixture
def pair(place: str, lease: str, tmp_path: Path) -> Iterator[Pair]:
    env = {"RECEIPTS": place, "FENCED": "1", "LEASE": lease}
    key = f"billing.slow@{tmp_path.name}"  # stores are shared by tests
    with serving(("uvicorn", "waitress"), tmp_path, **env) as servers:
        yield Pair(servers, tmp_path, key)


def test_one_of_several_concurrent_duplicates_runs_and_later_ones_get_its_answer(pair: Pair) -> None:
    duplicates = 6
    with ThreadPoolExecutor(duplicates) as pool:
        sent = [pool.submit(pair.fire, number) for number in range(duplicates)]
        # All but one get 503; that one runs until the test lets it end.
        wait_for(lambda: sum(one.done() for one in sent) == duplicates - 1, what="five answers")
        refused = [one.result() for one in sent if one.done()]
        pair.go()
        (last,) = [one.result(PATIENCE_S) for one in wait(sent).done if one.result() not in refused]
    assert {(one.outcome, one.status) for one in refused} == {(Outcome("failed", "HTTP 503"), 503)}
    assert all(b"AlreadyRunning" in one.tail and 1 <= (one.again_after_s or 0) <= 600 for one in refused)
    assert (last.outcome, last.tail) == (SUCCEEDED, b"went")
    assert [pair.fire(number, attempt=2).tail for number in range(2)] == [b"went", b"went"]
    assert pair.runs() == 1

    # Each server refuses a stale fence, and still answers a handled fire with its result.
    assert pair.fire(0, "note", "/b", fence=20).outcome == SUCCEEDED
    stale = pair.fire(1, "note", "/a", fence=19)
    assert (stale.outcome, stale.status) == (Outcome("rejected", "HTTP 409"), 409)
    assert b"StaleFence" in stale.tail and pair.runs("/a") == 0
    assert pair.fire(1, "note", "/b", fence=20).outcome == SUCCEEDED and pair.runs("/b") == 1

    # A job that fails gives its fire back, and one that rejects does not.
    for number in range(2):
        assert pair.fire(number, "broken", "/c", fence=30 + number).status == 500
        assert pair.fire(number, "no", "/d", fence=40).status == 410
    assert pair.runs("/c") == 2


@pytest.mark.parametrize("lease", ["3"])
def test_a_server_that_is_killed_during_a_job_does_not_block_the_fire_for_ever(pair: Pair) -> None:
    with ThreadPoolExecutor(1) as pool:
        dying = pool.submit(pair.fire, 0)
        wait_for(lambda: pair.runs() == 1, what="the start")
        pair.servers[0].kill()
        assert dying.result(PATIENCE_S).outcome.kind == "failed"
    pair.go()
    ends: list[End] = []
    wait_for(lambda: ends.append(pair.fire(1, attempt=2)) or ends[-1].status == 200, what="another run")
    assert {end.status for end in ends} <= {503, 200}
    assert pair.runs() == 2 and ends[-1].tail == b"went"


@pytest.mark.parametrize("lease", ["3"])
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_job_that_outlives_its_lease_and_its_caller_does_not_run_twice_at_once(pair: Pair) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(pair.fire, 0)
        wait_for(lambda: pair.runs() == 1, what="the start")
        leases: set[float] = set()
        wait_for(lambda: leases.add(_lease(pair)) or len(leases) > 4, what="renewals, for more than a lease")
        assert max(leases) - min(leases) > 3
        assert pair.fire(1).status == 503
        pair.go()
        assert first.result(PATIENCE_S).outcome == SUCCEEDED
    assert pair.runs() == 1


def _lease(pair: Pair) -> float:
    """Return the end of the lease in the only receipt."""
    with closing(sqlite3.connect(pair.folder / "receipts.db", timeout=PATIENCE_S)) as db:
        (until,) = db.execute("SELECT until FROM detent_receive_receipts").fetchone()
        return float(until)


# In one process.


def receiver(tmp_path: Path, **settings: Any) -> Receiver:
    place = f"sqlite:///{tmp_path / 'receipts.db'}"
    return Receiver(
        "billing", base_url="http://h", secrets=f"raw:{SECRET}", secret_refs=["s"], dedupe=place, **settings
    )


def test_a_disconnected_caller_does_not_stop_the_job_and_its_outcome_is_recorded(tmp_path: Path) -> None:
    cron, ran = receiver(tmp_path), list[str]()

    async def scenario() -> list[dict[str, Any]]:
        started, go, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @cron.job("@daily")
        async def note(fire: ReceivedFire) -> str:
            ran.append(fire.key)
            started.set()
            await go.wait()
            over.set()
            return "done"

        sent: list[dict[str, Any]] = []
        caller = asyncio.create_task(_call(cron, sent))
        await asyncio.wait_for(started.wait(), PATIENCE_S)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        go.set()
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        for _ in range(1000):  # what is left to do is to record it
            await _call(cron, sent)
            if sent[-2]["status"] == 200:
                break
            await asyncio.sleep(0.01)
        return sent

    sent = asyncio.run(scenario())
    assert sent[-2]["status"] == 200 and sent[-1]["body"] == b"done"
    assert len(ran) == 1


async def _call(cron: Receiver, sent: list[dict[str, Any]]) -> None:
    asked = incoming()
    headers = [(name.encode(), value.encode()) for name, value in asked.headers.items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": asked.path,
        "raw_path": b"/cron/note",
        "headers": headers,
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await cron.asgi()(scope, receive, send)


def test_finished_work_is_a_success_even_if_it_cannot_be_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cron = receiver(tmp_path)

    @cron.job("@daily")
    def note() -> str:
        (tmp_path / "receipts.db").write_text("no database any more: " * 100)
        return "done"

    with caplog.at_level(logging.ERROR):
        assert cron.receive(incoming()) == Reply(200, b"done")
    assert "is not recorded, and may run again" in caplog.text


def test_nothing_runs_if_it_cannot_be_recorded(tmp_path: Path) -> None:
    cron, ran = receiver(tmp_path / "nowhere"), list[ReceivedFire]()
    cron.job("@daily", name="note")(ran.append)
    reply = cron.receive(incoming())
    assert reply.status == 503 and b"NotRecorded" in reply.body and ran == []


def test_a_process_that_exits_during_its_job_releases_the_fire(tmp_path: Path) -> None:
    cron, exits = receiver(tmp_path), [True]

    @cron.job("@daily")
    def note() -> str:
        if exits.pop():
            raise SystemExit(3)
        return "done"

    with pytest.raises(SystemExit):
        cron.receive(incoming())
    exits.append(False)
    assert cron.receive(incoming()).body == b"done"
