"""What a node's events and store calls count as."""

from datetime import UTC, datetime
from typing import Any

import pytest

from detent.model import Ask, Claim, Fire, Grants, Outcome, Report, Verdict
from detent.observe.metrics.node import JOBS_MAX, OTHER, NodeMetrics
from detent.observe.metrics.prometheus import PrometheusMeter
from detent.observe.watched_store import VERBS, Watch, watched_store
from detent.stores.registry import open_store

AT = datetime(2026, 3, 1, 2, tzinfo=UTC)
ASK = Ask("a", "n.1", 1)
PLACE = {"app": "a", "queue": "default"}


class Measured:
    """A node's metrics, and the events that they emit."""

    def __init__(self) -> None:
        self.meter, self.events = PrometheusMeter(), list[str]()
        self.node = NodeMetrics("a", [self.meter], lambda event, **_: self.events.append(event))

    def value(self, name: str, **labels: str) -> float | None:
        return self.meter.registry.get_sample_value(name, labels)

    def grant(self, *claims: Claim) -> None:
        self.node.watch.granted(ASK, Grants(claims, AT, 0.0, "e"))

    def end(self, claim: Claim, kind: Any, verdict: Verdict | None = None, took_s: float = 1.0) -> None:
        said = Verdict(Outcome(kind))
        self.node.watch.ended([Report(claim, said, took_s=took_s)], [verdict or said])


@pytest.fixture
def measured() -> Measured:
    return Measured()


def claim(job: str = "b", fence: int = 1, attempt: int = 1, **fields: Any) -> Claim:
    fire = Fire(f"a.{job}@{fence}", f"a.{job}", AT, run_id=f"r{fence}", **fields)
    return Claim(fire, "n.1", fence, attempt, ttl_s=30, expires_at=AT)


def test_the_names_of_jobs_are_limited_and_that_is_one_event(measured: Measured) -> None:
    for number in range(JOBS_MAX + 5):
        measured.end(claim(f"job-{number}", number), "succeeded")
    ended = {"app": "a", "outcome": "succeeded"}
    assert measured.value("detent_fires_total", **ended, job=f"job-{JOBS_MAX - 1}") == 1
    assert measured.value("detent_fires_total", **ended, job=f"job-{JOBS_MAX}") is None
    assert measured.value("detent_fires_total", **ended, job=OTHER) == 5
    assert measured.events == ["metrics-limited"]
    measured.end(claim("job-0", 9999), "succeeded")
    assert measured.value("detent_fires_total", **ended, job="job-0") == 2


def test_an_attempt_that_is_retried_is_no_fire_that_is_over(measured: Measured) -> None:
    measured.end(claim(), "failed", Verdict(Outcome("failed"), again_in_s=1.0))
    assert measured.value("detent_attempts_total", **PLACE, outcome="failed") == 1
    assert measured.value("detent_fires_total", app="a", job="b", outcome="failed") is None


def test_a_claim_that_is_returned_or_settled_without_running_is_no_attempt(measured: Measured) -> None:
    measured.end(claim(), "lost", Verdict(Outcome("lost"), again_in_s=1.0, counts=False))
    skipped = claim(fence=2)._replace(disposition=Outcome("skipped"))
    measured.grant(skipped)
    measured.end(skipped, "skipped")
    assert measured.value("detent_attempts_total", **PLACE, outcome="skipped") is None
    assert measured.value("detent_fires_total", app="a", job="b", outcome="skipped") == 1
    assert measured.value("detent_fire_duration_seconds_count", **PLACE) is None
    assert measured.value("detent_fire_lateness_seconds_count", **PLACE) is None


def test_a_verdict_of_another_claim_and_a_hook_are_not_counted(measured: Measured) -> None:
    measured.node.watch.ended([Report(claim(), Verdict(Outcome("succeeded")))], [None])
    measured.end(claim(origin="hook"), "succeeded")
    assert measured.value("detent_fires_total", app="a", job="b", outcome="succeeded") is None


def test_running_follows_grants_and_ends_also_if_an_answer_is_repeated(measured: Measured) -> None:
    one, other = claim(), claim(fence=2, queue="mail^high")
    measured.grant(one, other)
    measured.grant(one, other)
    assert measured.value("detent_running", **PLACE) == 1
    assert measured.value("detent_running", app="a", queue="mail") == 1
    measured.end(one, "succeeded")
    measured.end(one, "succeeded")
    assert measured.value("detent_running", **PLACE) == 0


def test_a_job_of_every_host_has_one_name(measured: Measured) -> None:
    measured.end(claim("b/host-1"), "succeeded")
    assert measured.value("detent_fires_total", app="a", job="b", outcome="succeeded") == 1


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ("claim-lost", "detent_claims_lost_total"),
        ("new-epoch", "detent_epochs_total"),
        ("clock-stepped", "detent_clock_steps_total"),
        ("warden-died", "detent_warden_deaths_total"),
    ],
)
def test_an_event_is_counted(measured: Measured, event: str, name: str) -> None:
    assert measured.value(name, app="a") == 0
    measured.node.emit(event, app="a")
    assert measured.value(name, app="a") == 1


def test_a_node_is_ready_between_its_start_and_its_end(measured: Measured) -> None:
    node = measured.node
    assert node.unready() == "the node is starting" and not node.unhealthy()
    node.emit("started")
    assert node.unready() == ""
    node.emit("store-unavailable", error="no route")
    assert node.unready() == "the store does not answer; the log says why" and not node.unhealthy()
    node.emit("store-back")
    assert node.unready() == ""
    node.emit("draining")
    assert node.unready() == "the node is draining"


def test_a_node_that_does_not_call_its_store_is_unhealthy(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.node.emit("started")
    monkeypatch.setattr("detent.clock.monotonic", lambda: 1e9)
    assert measured.node.unhealthy().startswith("the node has not called its store for ")
    assert measured.node.unready() == measured.node.unhealthy()
    measured.node.watch.called("renew", 0.1, None)
    assert measured.node.unhealthy() == ""


def test_every_verb_of_a_store_but_wait_and_close_is_timed() -> None:
    calls: list[tuple[str, bool]] = []
    watch = Watch(called=lambda verb, took_s, error: calls.append((verb, error is None)))
    store = watched_store(open_store("memory:"), watch)
    store.note("a", "x", "y")
    assert [note.text for note in store.notes("a")] == ["y"]
    store.wait("a", 0.0)
    store.claim(ASK)
    store.finish_and_claim([], ASK._replace(number=2))
    with pytest.raises(TypeError):
        store.count(None, None, None)  # type: ignore[call-arg, arg-type]
    store.close()
    verbs = ["note", "notes", "claim", "finish_and_claim", "count"]
    assert [verb for verb, _ in calls] == verbs and {*verbs} < VERBS
    assert [is_good for _, is_good in calls] == [True, True, True, True, False]
