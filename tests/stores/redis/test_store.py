"""The Redis store passes the shared suite, behaves like the in-memory store, and keeps the rules in races."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.equipment.redis_server import RedisServer, open_for

from detent.model import Ask, Grants
from detent.stores.base import Store
from detent.stores.redis.store import RedisStore
from detent.testing.check_store import CHECKS, Check, FakeClock, World, run_check
from detent.testing.stores.races import Opener, race_to_plan, race_to_run
from detent.testing.stores.state_machine import check_against_memory

CAMPAIGN = int(os.environ.get("DETENT_MACHINE_EXAMPLES", "0"))  # that many new sequences instead
EXAMPLES = CAMPAIGN or 6  # sequences of calls

prefixes = (f"{number}:" for number in itertools.count())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all tests; each store has its own prefix."""
    server = RedisServer(tmp_path_factory.mktemp("redis"), "--appendfsync", "no")
    yield server
    server.end()


class EagerStore(RedisStore):
    """Tries `take` first, whatever an ask is for."""

    def claim(self, ask: Ask) -> Grants:
        self._take_from[ask.app, ask.queues] = 0.0
        return super().claim(ask)


def _opened(url: str, clock: FakeClock, kind: type[RedisStore] = RedisStore) -> RedisStore:
    """An empty store with this clock."""
    return kind(url, next(prefixes), wall=clock.wall, elapsed=clock.monotonic)


@pytest.mark.parametrize("kind", [RedisStore, EagerStore], ids=["", "take"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_redis_store_keeps_the_rule(check: Check, kind: type[RedisStore], server: RedisServer) -> None:
    clock = FakeClock()

    def reopen(store: Store) -> Store:
        store.close()
        return store

    def forget(store: Store) -> Store:
        server.new_epoch()
        return store

    opener = partial(_opened, server.url, clock, kind)
    run_check(check, World(opener, clock.pass_time, clock.step_wall, reopen, forget))


@pytest.mark.parametrize("kind", [RedisStore, EagerStore], ids=["", "take"])
def test_the_redis_store_behaves_like_the_in_memory_store(
    kind: type[RedisStore], server: RedisServer
) -> None:
    opener = partial(_opened, server.url, kind=kind)
    check_against_memory(opener, examples=EXAMPLES, fixed=not CAMPAIGN)


@pytest.mark.parametrize("race", [race_to_run, race_to_plan], ids=lambda race: race.__name__)
def test_eight_processes_race(
    race: Callable[[Opener, Path], None], server: RedisServer, tmp_path: Path
) -> None:
    race(partial(open_for, server.url), tmp_path / "race")
