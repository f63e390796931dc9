"""Eight processes on one store together get no more than a queue's rate and breaker allow."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.equipment import mysql_server, postgres_server
from tests.equipment.redis_server import RedisServer, open_for
from tests.stores.queue_races import QUEUES, claim_on, probe

from detent.model import Ask, Outcome, Policy, Rate, Report, Verdict
from detent.rules.rates import rate_text
from detent.stores.base import RATE
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import fire
from detent.testing.stores.races import Opener, run_race

LIMIT = Rate(10, 1.0)
MESSAGES = 2 * LIMIT.most  # so its window opens once more
COOLDOWN_S = 0.5
SMTP = Policy("Allow", claim_s=60.0, breaker="smtp", breaker_threshold=2, breaker_cooldown_s=COOLDOWN_S)
REFUSED = Verdict(Outcome("failed", "refused", "backend"))

# A store's name -> what opens one for a race; it goes to other processes, and so must a pickle of it.
WORLDS: dict[str, Callable[[], Opener]] = {
    "sqlite": lambda: SqliteStore,
    "redis": lambda: _redis()[1],
    "mysql": lambda: partial(mysql_server.open_for, mysql_server.shared_mysql().url("mysql")),
    "postgres": lambda: partial(postgres_server.open_for, postgres_server.shared_server().url),
}


@cache
def _redis() -> tuple[TemporaryDirectory[str], Opener]:
    """One server for all tests."""
    folder = TemporaryDirectory(prefix="detent-races-", ignore_cleanup_errors=True)
    return folder, partial(open_for, RedisServer(Path(folder.name), "--appendfsync", "no").url)


@pytest.fixture(params=WORLDS)
def opener(request: pytest.FixtureRequest) -> Opener:
    return WORLDS[request.param]()


def test_a_rate_holds_in_every_window(opener: Opener, tmp_path: Path) -> None:
    store = opener(tmp_path / "race.db")
    store.note("a", RATE + "mail", rate_text(LIMIT))
    policy = Policy("Allow", claim_s=60.0)
    store.put([fire(f"a.b@{n}", origin="push", queue=QUEUES[n % 3], policy=policy) for n in range(MESSAGES)])
    store.close()
    seen = sorted(at for saw in run_race(claim_on, opener, tmp_path / "race.db") for at in saw)
    assert len(seen) == MESSAGES
    for first in seen:
        begun = [at for at in seen if first <= at <= first + LIMIT.window_s]
        assert len(begun) <= LIMIT.most, f"{len(begun)} began in {LIMIT.window_s:.0f} s: {begun}"


def test_only_one_fire_probes_a_breaker(opener: Opener, tmp_path: Path) -> None:
    store = opener(tmp_path / "race.db")
    store.put([fire(f"a.b@{n}", origin="push", queue="mail", policy=SMTP) for n in range(50)])
    claims = store.claim(Ask("a", "the first", 1, SMTP.breaker_threshold, QUEUES)).claims
    store.finish([Report(claim, REFUSED) for claim in claims])
    store.close()
    saw = run_race(probe, opener, tmp_path / "race.db")
    assert [len(probes) for probes in saw if probes] == [1], "one of them, once"
