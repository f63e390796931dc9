"""Fires, records and names as the Redis store writes them."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from detent.model import Fire, Outcome, Policy, Retries, Verdict
from detent.stores.engine.record import Record
from detent.stores.redis.indexes import decoded, encoded
from detent.stores.redis.values import fire_text, fires_of, line_of, records_of

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
def test_fires_are_kept_as_they_were(fires: list[Fire]) -> None:
    assert fires_of([fire_text(fire) for fire in fires]) == fires


OUTCOMES = st.sampled_from(
    [None, Outcome("failed", 'a "b"\tc', "work"), Outcome("skipped", "", "lane", "a.b")]
)


@given(st.lists(st.tuples(FIRES, OUTCOMES, st.booleans(), st.integers(-3, 2**52)), max_size=8))
def test_records_are_kept_as_they_were(some: list[tuple[Fire, Outcome | None, bool, int]]) -> None:
    words: list[bytes] = []
    records = []
    for number, (fire, outcome, flag, fence) in enumerate(some):
        one = Record(fire, 1.1 + number)
        one.id, one.attempt, one.recorded, one.fence, one.ran_fence = number + 1, 3, 2, fence, fence
        one.node, one.ran_node, one.ask = "n 1", "n 1" if flag else "n2", 7
        one.outcome, one.stop, one.waits, one.is_parked = outcome, outcome, flag, flag
        one.verdict = Verdict(outcome, 5.5 if flag else None, flag) if outcome else None
        one.over_at, one.expires, one.ttl_s, one.ran_at = 7.25, 1e9 + 0.1, 30.0, 3.5
        words += [b"9 100 %d %b" % (9 << 16, line_of(one)), fire_text(fire)]
        records.append(one)
    for one, kept in zip(records, records_of(words), strict=True):
        fence = one.fence if one.fence >= 0 else 99 - one.fence
        assert (kept.version, kept.fence, kept.ran_fence) == (9, fence, fence)
        for name in vars(one).keys() - {"version", "fence", "ran_fence", "over_at"}:
            assert getattr(kept, name) == getattr(one, name), name


def test_a_new_record_gets_its_id_from_its_commit() -> None:
    (fire,) = [Fire("a.b#1", "a.b", AT)]
    one = Record(fire, 1.0)
    one.id = -3
    (kept,) = records_of([b"9 100 %d %b" % (9 << 16, line_of(one)), fire_text(fire)])
    assert kept.id == (9 << 16) + 3


@given(TEXTS | st.just("caf\udce9 |"))
def test_a_name_in_a_key_has_no_space_and_no_bar(name: str) -> None:
    assert decoded(encoded(name)) == name
    assert not set(encoded(name)) & {" ", "|"}
