"""Receipts on servers whose wall clock is set: live leases continue, and dead ones end."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

import pytest
from tests.chaos.servers import STORES, ChaosStore
from tests.equipment.fleet import wait_for
from tests.equipment.wall_clock import build_skew

from detent.receive.receipts.base import Arrival, BeginResult, ReceiptOptions, Receipts, open_receipts

TERMS = ReceiptOptions(lease_s=15, keep_s=86_400, is_fenced=True)
BRIEF = TERMS._replace(lease_s=2)
OURS = BeginResult("ours")
HOUR = 3600.0


@pytest.fixture(params=["redis", "postgres"], scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosStore]:
    folder = tmp_path_factory.mktemp("stepped")
    server = STORES[request.param](folder, build_skew(folder))
    yield server
    server.remove()


@pytest.fixture
def another(server: ChaosStore) -> Iterator[Callable[[], Receipts]]:
    """Opens the receipts as another process does, one that remembers nothing of the server's clock."""
    made: list[Receipts] = []

    def open_one() -> Receipts:
        made.append(open_receipts(server.url))
        return made[-1]

    yield open_one
    for one in made:
        one.close()
    server.clock.set(0.0)


@pytest.fixture
def app() -> str:
    return f"app-{secrets.token_hex(6)}"


def arriving(app: str, key: str = "k", fence: int = 1) -> Arrival:
    return Arrival(app, "job", key, fence, secrets.token_hex(8))


@pytest.mark.parametrize("step_s", [16.0, HOUR, -HOUR, 40 * 24 * HOUR])
def test_a_step_of_the_servers_clock_ends_no_live_lease(
    server: ChaosStore, another: Callable[[], Receipts], app: str, step_s: float
) -> None:
    ours, theirs, first = another(), another(), arriving(app)
    assert ours.begin(first, TERMS) == OURS
    theirs.begin(arriving(app, "other"), TERMS)
    server.clock.set(step_s)
    for place in (another(), theirs, ours, another()):
        standing = place.begin(arriving(app), TERMS)
        assert (standing.kind, 0 < standing.left_s <= 15) == ("running", True)
    ours.renew([first], TERMS)
    assert another().begin(arriving(app), TERMS).left_s > 14
    ours.finish(first, "done", TERMS)
    assert another().begin(arriving(app), TERMS) == BeginResult("handled", answer="done")


@pytest.mark.parametrize("step_s", [HOUR, -HOUR])
def test_after_a_step_the_fire_of_a_dead_process_is_free_when_its_lease_ends(
    server: ChaosStore, another: Callable[[], Receipts], app: str, step_s: float
) -> None:
    dead, place = another(), another()
    place.begin(arriving(app, "other"), TERMS)
    assert dead.begin(arriving(app), BRIEF) == OURS
    server.clock.set(step_s)
    assert place.begin(arriving(app), BRIEF).kind == "running"
    wait_for(lambda: place.begin(arriving(app), TERMS) == OURS, what="the end of the lease")


def test_calls_without_memory_do_not_extend_a_dead_lease_for_ever(
    server: ChaosStore, another: Callable[[], Receipts], app: str
) -> None:
    """Each process sees a gap without calls, which looks like a step of the clock."""
    assert another().begin(arriving(app), BRIEF) == OURS
    kinds: list[str] = []
    for number in range(1, 4):
        server.clock.set(number * 10.0)
        kinds.append(another().begin(arriving(app), TERMS).kind)
    assert kinds == ["running", "ours", "running"]


def test_a_step_of_more_than_keep_days_forgets_no_fence_and_no_answer(
    server: ChaosStore, another: Callable[[], Receipts], app: str
) -> None:
    place, first, long = another(), arriving(app, fence=9), TERMS._replace(keep_s=30 * 24 * HOUR)
    assert place.begin(first, long) == OURS
    place.finish(first, "done", long)
    server.clock.set(40 * 24 * HOUR)
    for one in (another(), place, another()):
        assert one.begin(arriving(app, fence=8), long) == BeginResult("handled", answer="done")
        assert one.begin(arriving(app, "late", fence=8), long) == BeginResult("stale", newest=9)
