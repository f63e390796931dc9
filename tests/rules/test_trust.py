"""Margins and stop instants of a claim: their values and their order."""

import ast
from pathlib import Path

import pytest

from detent.rules import trust

SOURCE = Path(trust.__file__).parents[1]
LIFETIMES = ("ttl_s", "claim_s")


@pytest.mark.parametrize(
    ("ttl_s", "margin_s", "renew_s"),
    [
        (2.0, 1.0, 1 / 3),
        (10.0, 1.0, 10 / 6),
        (30.0, 3.0, 5.0),
        (90.0, 9.0, 15.0),
        (86_400.0, 8640.0, 14_400.0),
    ],
)
def test_the_margin_and_the_renewals_of_a_claim(ttl_s: float, margin_s: float, renew_s: float) -> None:
    assert trust.margin_s(ttl_s) == pytest.approx(margin_s)
    assert trust.renew_s(ttl_s) == pytest.approx(renew_s)
    assert trust.trusted_by(100.0, ttl_s) == pytest.approx(100.0 + ttl_s - margin_s)


@pytest.mark.parametrize(
    ("ttl_s", "kill_after_s", "notice_s", "away_s"),
    [(30.0, 10.0, 5.0, 17.0), (30.0, 1.0, 1.0, 21.0), (30.0, 0.0, 0.0, 22.0), (2.0, 10.0, 1 / 3, 1 / 3)],
)
def test_the_notice_before_sigkill_and_the_tolerated_outage_of_the_store(
    ttl_s: float, kill_after_s: float, notice_s: float, away_s: float
) -> None:
    assert trust.notice_s(ttl_s, kill_after_s) == pytest.approx(notice_s)
    assert trust.term_by(100.0, ttl_s, kill_after_s) == pytest.approx(100.0 - notice_s)
    assert trust.time_away_s(ttl_s, kill_after_s) == pytest.approx(away_s)


@pytest.mark.parametrize("kill_after_s", [0.0, 10.0, 3600.0])
@pytest.mark.parametrize("ttl_s", [trust.CLAIM_MIN_S, 5.0, 30.0, 90.0, 86_400.0])
def test_sigterm_sigkill_and_the_hung_warden_limit_come_before_the_claim_expires(
    ttl_s: float, kill_after_s: float
) -> None:
    until = trust.trusted_by(0.0, ttl_s)
    term_by, overdue_at = trust.term_by(until, ttl_s, kill_after_s), trust.overdue_at(until, ttl_s)
    assert 0.0 < trust.renew_s(ttl_s) < term_by <= until < overdue_at < ttl_s
    assert ttl_s - until >= 2 * trust.STEP_S


@pytest.mark.parametrize(
    ("timeout_s", "ttl_s"),
    [(0.0, 0.0), (0.5, 30.5), (30.0, 60.0), (60.0, 90.0), (61.0, 90.0), (3600.0, 90.0)],
)
def test_the_claim_of_a_trigger_outlives_a_short_timeout(timeout_s: float, ttl_s: float) -> None:
    assert trust.trigger_ttl_s(timeout_s) == ttl_s
    if 0 < timeout_s <= 60:
        assert trust.term_by(trust.trusted_by(0.0, ttl_s), ttl_s, 3600.0) > timeout_s


@pytest.mark.parametrize(("timeout_s", "wait_s"), [(0.0, 5.0), (10.0, 5.0), (60.0, 30.0)])
def test_the_wait_for_a_lane(timeout_s: float, wait_s: float) -> None:
    assert trust.lane_wait_s(timeout_s) == wait_s


def test_no_other_module_computes_margins_of_a_claim() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)}"
        for path in SOURCE.rglob("*.py")
        if path != Path(trust.__file__) and "testing" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult)
        if ast.unparse(node.left).endswith(LIFETIMES) or ast.unparse(node.right).endswith(LIFETIMES)
    ]
    assert found == []
