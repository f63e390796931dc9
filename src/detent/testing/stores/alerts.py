"""Checks of a store: alerts that are not sent for each fire, and the order of pings."""

from __future__ import annotations

import json

from detent.model import Claim, End, Policy, Verdict
from detent.rules.planning import HOOK_POLICY
from detent.rules.settling import report, start_hooks
from detent.stores.base import Store
from detent.testing.stores.fixtures import DONE, OVER, Asker, World, finish, fire, found, keys

ALERTED = Policy(hooks=("on_failure.slack-1",), remind_s=3600.0)
PINGED = Policy(hooks=("on_start.ping", "on_success.ping"))


def _settle_with_alert(store: Store, key: str, verdict: Verdict) -> list[str]:
    """Run a fire to its end and return the states of the alerts that follow, which are then sent."""
    store.put([fire(key, policy=ALERTED)])
    node = Asker(store, node=f"n{key}")
    claim = node.claim_one()
    settled = report(claim, verdict, End(verdict.outcome), claim.expires_at)
    assert settled.follow, "the rules offer an alert for each end"
    assert store.finish([settled]) == [verdict]
    alerts = node.claim()
    assert [finish(store, alert) for alert in alerts] == [DONE for _ in alerts]
    return [json.loads(alert.fire.payload)["state"] for alert in alerts]


def an_alert_is_recorded_when_a_job_begins_to_fail_and_when_it_recovers(store: Store, world: World) -> None:
    said = [
        _settle_with_alert(store, f"a.b@{i}", verdict) for i, verdict in enumerate((DONE, OVER, OVER, DONE))
    ]
    assert said == [[], ["began"], [], ["recovered"]]
    assert _settle_with_alert(store, "a.b@5", DONE) == []


def an_alert_is_recorded_again_after_the_time_of_a_reminder(store: Store, world: World) -> None:
    assert _settle_with_alert(store, "a.b@1", OVER) == ["began"]
    world.pass_time(ALERTED.remind_s + 1)
    assert _settle_with_alert(store, "a.b@2", OVER) == ["continues"]
    assert _settle_with_alert(store, "a.b@3", OVER) == []


def an_alert_that_was_not_delivered_is_recorded_again(store: Store, world: World) -> None:
    store.put([fire("a.b@1", policy=ALERTED)])
    node = Asker(store)
    claim = node.claim_one()
    store.finish([report(claim, OVER, End(OVER.outcome), claim.expires_at)])
    assert finish(store, node.claim_one(), OVER) == OVER
    assert _settle_with_alert(store, "a.b@2", OVER) == ["continues"]


def two_fires_that_fail_in_one_call_cause_one_alert(store: Store, world: World) -> None:
    store.put([fire("a.b@1", policy=ALERTED, lane=""), fire("a.b@2", policy=ALERTED, lane="")])
    claims = Asker(store).claim()
    assert store.finish([report(one, OVER, End(OVER.outcome), one.expires_at) for one in claims]) == [
        OVER,
        OVER,
    ]
    assert len(found(store, origins=("hook",))) == 1


def _pinged(store: Store) -> tuple[Asker, Claim]:
    store.put([fire("a.b@1", policy=PINGED)])
    node = Asker(store)
    claim = node.claim_one()
    store.put(start_hooks(claim, claim.expires_at))
    return node, claim


def a_ping_of_the_start_that_was_not_sent_is_dropped_at_the_end(store: Store, world: World) -> None:
    node, claim = _pinged(store)
    store.finish([report(claim, DONE, End(DONE.outcome), claim.expires_at)])
    assert keys(node.claim()) == ["a.b@1/on_success.ping"]


def the_ping_of_the_end_waits_while_that_of_the_start_is_sent(store: Store, world: World) -> None:
    node, claim = _pinged(store)
    assert keys(node.claim()) == ["a.b@1/on_start.ping"]
    store.finish([report(claim, DONE, End(DONE.outcome), claim.expires_at)])
    assert node.claim() == []
    world.pass_time(HOOK_POLICY.timeout_s)
    assert "a.b@1/on_success.ping" in keys(node.claim())
