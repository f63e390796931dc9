"""What travels to and from the Redis scripts: texts of many fires are read as each by itself is."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from detent.model import Fire, Policy, Retries
from detent.stores.redis.values import claims_of, fire_of, fire_text, fires_of, put_values

AT = datetime(2026, 3, 1, 2, 0, 0, 123000, tzinfo=UTC)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
POLICIES = [Policy("Allow"), Policy("Queue", retries=Retries(max_attempts=3)), Policy(rate_key="tenant")]
FIRES = st.builds(
    Fire,
    key=TEXTS.map(lambda text: f"a.b#{text}"),
    job=st.sampled_from(["a.b", "a.c"]),
    due_at=st.integers(0, 2).map(lambda hours: AT + timedelta(hours=hours)),
    run_id=TEXTS,
    queue=st.sampled_from(["default", 'the "other"']),
    lane=st.sampled_from(["", "", "a.lane"]),
    start_by=st.sampled_from([None, AT]),
    policy=st.sampled_from(POLICIES),
    origin=st.sampled_from(["push", "push", "manual", "schedule"]),
    revision=st.sampled_from(["", "r1"]),
    first_at=st.just(None),
    instants=st.just(1),
    payload=TEXTS | st.just('{"v":1,"job":"x","args":[",\\"job\\":"]}'),
)


@given(st.lists(FIRES, max_size=8))
def test_many_texts_are_parsed_like_single_ones(fires: list[Fire]) -> None:
    """Those of messages as they are put, and those of other fires."""
    put = [bytes(text) for text in put_values(fires)[1][3::4]]
    assert fires_of(put) == [fire_of(text) for text in put] == fires
    assert fires_of([fire_text(fire) for fire in fires]) == fires


@given(st.lists(FIRES, min_size=1, max_size=8))
def test_each_message_refers_to_its_own_rules(fires: list[Fire]) -> None:
    rules, words = put_values(fires)
    for fire, key, due, number in zip(fires, words[::4], words[1::4], words[2::4], strict=True):
        assert (key.decode(), float(due)) == (fire.key, fire.due_at.timestamp())
        is_light = fire.origin == "push" and not fire.lane
        assert bool(int(number)) == is_light
        if is_light:
            found = rules[int(number) - 1]
            assert (found["job"], found["queue"]) == (fire.job, fire.queue)
            assert found.get("rare", {}).get("rate_key", "") == fire.policy.rate_key


def test_each_claim_has_its_own_ttl_and_disposition() -> None:
    fires = [Fire(f"a.b#{n}", "a.b", AT, policy=POLICIES[0], origin="push") for n in range(3)]
    rests = [b'{"ttl_s":"30"}', b'{"ttl_s":"5","sentence":"lost gone"}', b'{"ttl_s":"30"}']
    texts = put_values(fires)[1][3::4]
    told: list[Any] = [word for n in range(3) for word in (texts[n], 7 + n, n + 1, rests[n])]
    claims = claims_of(told, AT.timestamp(), "n.1")
    assert [(one.fire, one.fence, one.attempt, one.ttl_s) for one in claims] == [
        (fires[0], 7, 1, 30.0),
        (fires[1], 8, 2, 5.0),
        (fires[2], 9, 3, 30.0),
    ]
    assert [one.disposition and one.disposition.kind for one in claims] == [None, "lost", None]
