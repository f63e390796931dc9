"""How the shop's jobs are tested: pytest test_shop.py (from this folder)."""

from shop import app


def test_carts_are_forgotten_at_half_past_four_in_berlin() -> None:
    (fired,) = [one for one in app.fire_due("2026-03-01T03:30Z") if one.job == "forget-carts"]
    assert fired.outcome == "succeeded" and fired.result.startswith("carts of the last 30 days stay")


def test_the_bank_is_polled_every_other_second() -> None:
    fired = app.fire_due("2026-03-01T00:01Z", since="2026-03-01T00:00Z")
    assert [one.job for one in fired] == ["poll-bank"] * 30
