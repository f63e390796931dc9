"""The list of all series: names, types, labels and meanings.  Programs rely on it, as on the events."""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]  # the values of the labels, in their order

FAST_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
LONG_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


class Series(NamedTuple):
    name: str
    kind: Kind
    labels: Labels
    help: str
    bounds: tuple[float, ...] = ()  # of the buckets of a histogram


NODE = (
    Series("detent_build_info", "gauge", ("version", "python"), "always 1: the versions of this node"),
    Series("detent_fires_total", "counter", ("app", "job", "outcome"), "fires that this node settled"),
    Series("detent_attempts_total", "counter", ("app", "queue", "outcome"), "attempts that this node made"),
    Series("detent_fire_duration_seconds", "histogram", ("app", "queue"), "how long attempts ran", LONG_S),
    Series(
        "detent_fire_lateness_seconds",
        "histogram",
        ("app", "queue"),
        "how long after it was due a fire was claimed for its first attempt",
        LONG_S,
    ),
    Series(
        "detent_running", "gauge", ("app", "queue"), "fires that this node has claimed and not settled yet"
    ),
    Series(
        "detent_slots",
        "gauge",
        ("app", "queue"),
        "fires of this queue that the node runs at once at most; its queues share them",
    ),
    Series(
        "detent_store_call_duration_seconds",
        "histogram",
        ("verb",),
        "how long calls of the store took",
        FAST_S,
    ),
    Series("detent_store_errors_total", "counter", ("verb",), "calls of the store that failed"),
    Series("detent_claims_lost_total", "counter", ("app",), "claims that could not be renewed"),
    Series("detent_epochs_total", "counter", ("app",), "new epochs: the store may have lost data"),
    Series("detent_clock_steps_total", "counter", ("app",), "changes of the wall clock, and suspensions"),
    Series("detent_warden_deaths_total", "counter", ("app",), "deaths of the warden"),
    Series("detent_clock_offset_seconds", "gauge", (), "this node's wall clock minus the store's"),
)
STORE = (
    Series(
        "detent_job_last_success_timestamp_seconds",
        "gauge",
        ("app", "job"),
        "when a fire of the job last succeeded",
    ),
    Series("detent_job_next_timestamp_seconds", "gauge", ("app", "job"), "when the job is due next"),
    Series(
        "detent_job_last_but_one_timestamp_seconds",
        "gauge",
        ("app", "job"),
        "the instant before the job's newest one; without a success since, two instants had none",
    ),
    Series("detent_job_paused", "gauge", ("app", "job"), "1 if the job is paused"),
    Series("detent_job_late", "gauge", ("app", "job"), "1 if a due fire of the job has not started in time"),
    Series("detent_jobs_omitted", "gauge", ("app",), "jobs beyond the first 500, which have no series"),
    Series(
        "detent_queue_messages",
        "gauge",
        ("app", "queue", "state"),
        "messages by state: pending, delayed, running, dead",
    ),
    Series(
        "detent_queue_oldest_age_seconds",
        "gauge",
        ("app", "queue"),
        "how long the oldest due message has waited",
    ),
    Series("detent_breaker_open", "gauge", ("app", "breaker"), "1 if the circuit breaker is open"),
    Series("detent_nodes", "gauge", ("app",), "live nodes"),
    Series("detent_node_heartbeat_timestamp_seconds", "gauge", ("app",), "the newest heartbeat of any node"),
)
BY_NAME = {one.name: one for one in NODE + STORE}
