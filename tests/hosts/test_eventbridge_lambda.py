"""The Lambda function: it is called as the service calls it, and runs a real trigger on a real store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.equipment.redis_server import RedisServer

from detent.errors import HostError, UsageError
from detent.hosts.eventbridge.host import handler
from detent.hosts.eventbridge.schedules import RANG_AT, make_input
from detent.manifest.check import check_manifest
from detent.manifest.spec import Spec, specs_of
from detent.model import Query
from detent.stores.registry import open_store

PATIENCE_S = 60.0


class Context:
    """Lambda's context, with the time that is left."""

    def __init__(self, left_s: float = 300.0) -> None:
        self._left_s = left_s

    def get_remaining_time_in_millis(self) -> int:
        return int(self._left_s * 1000)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.end()


@pytest.fixture(autouse=True)
def clean(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    redis.call("FLUSHALL")
    monkeypatch.delenv("DETENT_STORE", raising=False)


def spec_of(command: str, url: str, **policy: Any) -> Spec:
    job = {"name": "note", "schedule": "* * * * *", "command": command.replace("$", "$$"), "policy": policy}
    [spec] = specs_of(check_manifest({"version": 2, "app": "shop", "store": url, "jobs": [job]}))
    return spec


def event(spec: Spec, rang_at: datetime) -> Any:
    """What the function is given: the service fills in the time wherever its name stands."""
    filled = make_input(spec, has_store=False).replace(RANG_AT, f"{rang_at:%Y-%m-%dT%H:%M:%SZ}")
    return json.loads(filled.replace("<aws.scheduler.execution-id>", "INJECTED"))


def wait_for(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def last_minute(ago: int = 1) -> datetime:
    """Return a past minute, early in the current one, so that no newer minute begins during the test."""
    while datetime.now(UTC).second > 50:
        time.sleep(0.2)
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=ago)


def test_two_triggers_for_one_instant_run_it_once(tmp_path: Path, redis: RedisServer) -> None:
    spec, at = spec_of(f"echo $DETENT_FIRE >> {tmp_path}/ran", redis.url), last_minute(2)
    for _ in range(2):  # Lambda may call twice for one event
        answer = handler(event(spec, at), Context())
        assert answer == {"job": "shop.note", "rang_at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    assert (tmp_path / "ran").read_text() == f"shop.note@{at:%Y-%m-%dT%H:%M:%SZ}\n"


def test_a_failed_trigger_is_raised(redis: RedisServer) -> None:
    with pytest.raises(HostError, match=r"shop\.note: all attempts failed"):
        handler(event(spec_of("exit 7", redis.url), last_minute()), Context())
    redis.call("FLUSHALL")
    with pytest.raises(HostError, match="could not be attempted"):
        handler(event(spec_of("true", "redis://127.0.0.1:1"), last_minute()), Context())


def test_contention_is_no_failure(tmp_path: Path, redis: RedisServer) -> None:
    waits = f"echo x >> {tmp_path}/ran; until test -e {tmp_path}/go; do sleep 0.05; done"
    call = event(spec_of(waits, redis.url), last_minute())
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(handler, call, Context())
        try:
            wait_for((tmp_path / "ran").exists)
            handler(call, Context())
        finally:
            (tmp_path / "go").touch()
        assert first.result(PATIENCE_S)["job"] == "shop.note"
    assert (tmp_path / "ran").read_text() == "x\n"


def test_before_lambdas_limit_the_attempt_is_ended_and_settled(tmp_path: Path, redis: RedisServer) -> None:
    spec = spec_of(f"echo $$ > {tmp_path}/pid; exec sleep 600", redis.url)
    with pytest.raises(HostError, match="signal 15"):
        handler(event(spec, last_minute()), Context(left_s=15))
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()
    with closing(open_store(redis.url)) as store:
        [row] = store.find(Query(app="shop", origins=("schedule",), state="over"))
    assert row.outcome is not None and row.attempt == 1


def test_the_service_expands_nothing_in_a_spec(tmp_path: Path, redis: RedisServer) -> None:
    spec = spec_of(f"echo '<aws.scheduler.execution-id> {RANG_AT}' > {tmp_path}/said", redis.url)
    handler(event(spec, last_minute()), Context())
    assert (tmp_path / "said").read_text() == f"<aws.scheduler.execution-id> {RANG_AT}\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        "x",
        {"detent": {}},
        {"detent": {"job": "../../etc/x", "spec": {}}},
        {"detent": {"job": 1, "spec": {}}},
    ],
)
def test_a_foreign_event_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError):
        handler(wrong, Context())
