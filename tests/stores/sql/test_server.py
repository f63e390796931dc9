"""What a client knows of a server's clock between two calls."""

from __future__ import annotations

from detent.stores.sql.server import GUESS_ROUND_TRIP_S, GUESS_S, Observer, State
from detent.stores.sql.server_clock import World

WORLD = World(
    epoch="e1",
    previous="",
    system="s1",
    steps=100.0,
    seen=900.0,
    born=0.0,
    doubted=0.0,
    quarantined_until=0.0,
    longest_ttl_s=30.0,
)


def state(sent: float = 5.0, answered: float = 5.05) -> State:
    return State(WORLD, 1000.0, "s1", 0, 0, sent, answered)


def observer(now: float, known: State) -> Observer:
    found = Observer(lambda: now, notices_loss=False)
    assert found.judge("a", known) is None
    return found


def test_a_guess_is_due_not_before_the_server_says_so_and_expires_nothing_too_early() -> None:
    guess = observer(7.0, state()).guess("a")
    assert guess is not None
    _, header = guess
    assert header.wall == 1000.0 + 1.95, "as if the server had read its clock just before it answered"
    assert header.steady == 900.0 + 2.0, "as if it had read its clock when it was asked"


def test_only_a_quick_and_recent_reply_of_this_app_allows_a_guess() -> None:
    assert observer(5.05 + GUESS_S - 0.01, state()).guess("a")
    assert observer(5.05 + GUESS_S + 0.01, state()).guess("a") is None
    assert observer(7.0, state(answered=5.01 + GUESS_ROUND_TRIP_S)).guess("a") is None
    assert observer(7.0, state()).guess("b") is None


def test_a_store_that_must_be_corrected_is_not_guessed() -> None:
    found = observer(7.0, state())
    assert found.judge("a", state()._replace(system="s2")) is not None
    assert found.guess("a") is None
