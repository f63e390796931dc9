"""Builds the document of the screen Now from a picture: jobs, timeline, running, attention, next, nodes."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from detent.dashboard.picture import JOBS_MAX, Picture
from detent.dashboard.records import fire_entry, job_entry, mark
from detent.model import Row
from detent.views import status
from detent.views.formatting import iso
from detent.views.nodes import node_record, remarks

WINDOWS_S = (600, 3_600, 86_400)
SIZE_MAX = 260_000  # approximate bytes of a whole document without the coming instants
JOB_SIZE, MARK_SIZE, CELL_SIZE = 420, 180, 50  # approximate bytes of each
NEXT_MAX = 20
RUNNING_SHOWN_MAX = 100
ATTENTION_MAX = 100
REASON_MAX = 120  # characters of a reason on the timeline


def overview_of(picture: Picture) -> status.Overview:
    marks, now = picture.watermarks, picture.now
    picture.coming.move_to(now)
    overview = status.Overview(now, picture.app, nodes=picture.nodes, running=picture.running)
    names = {*picture.jobs()}
    late = [*status.late_fires(picture.waiting, picture.running, overview.alive, now), *picture.unplanned]
    for queue, row in picture.oldest.items():
        size = picture.sizes.get(queue)
        if size and (one := status.late_message(row, size, overview.alive, now)):
            late.append(one)
    sizes = {picture.app: picture.sizes}
    return overview._replace(
        coming=[
            status.next_fire(picture.manifest, name, due_at, picture.pauses)
            for due_at, name in picture.coming.first(NEXT_MAX)
        ],
        failures=status.failures([row for row in picture.failed if row.fire.job in names], marks.by_job),
        late=status.merge_late(late),
        retrying=[row for row in picture.waiting if row.attempt],
        pauses=[pause for pause in picture.pauses.values() if pause.job in names],
        unserved=status.unserved_queues(sizes, picture.waiting, overview),
        quarantined_until=marks.quarantined_until,
    )


def job_entries(picture: Picture, names: list[str], overview: status.Overview) -> dict[str, dict[str, Any]]:
    wrong = {one.job: "late" for one in overview.late}
    wrong |= {one.last.fire.job: "failing" for one in overview.failing}
    return {name: job_entry(picture, name, wrong.get(name, "")) for name in names}


def document(picture: Picture, window_s: int) -> dict[str, Any]:
    overview, names = overview_of(picture), picture.jobs()
    found, shown = status.problems(overview), names[:JOBS_MAX]
    return {
        "now": iso(overview.now),
        "app": picture.app,
        "headline": {"ok": not found, "text": status.headline(overview)},
        "problems": found,
        "jobs": job_entries(picture, shown, overview),
        "jobs_left_out": len(names) - len(shown),
        **_timeline(picture, window_s, len(shown)),
        "running": [fire_entry(row) for row in picture.running[:RUNNING_SHOWN_MAX]],
        "running_count": len(picture.running),
        "messages": {
            "waiting": sum(size.pending + size.delayed for size in picture.sizes.values()),
            "dead": sum(size.dead for size in picture.sizes.values()),
        },
        "attention": [*_attention(overview)][:ATTENTION_MAX],
        "soon": picture.coming.soon(),
        "nodes": [node_record(node) for node in overview.nodes],
    }


def _timeline(picture: Picture, window_s: int, jobs: int) -> dict[str, Any]:
    """Marks of single fires or, if there are too many of them, numbers in buckets."""
    now, room = picture.now, SIZE_MAX - jobs * JOB_SIZE
    since = now - timedelta(seconds=window_s)
    rows = [row for row in picture.rows.values() if row.fire.due_at >= since or row.state == "claimed"]
    is_cut = picture.dropped_at is not None and picture.dropped_at > since
    if is_cut or len(rows) * MARK_SIZE > room:
        picture.tallies.want(window_s)
        newest = picture.ended_since(picture.tallies.until)
        step_s, buckets = picture.tallies.buckets(now, window_s, max(1, room // CELL_SIZE), newest)
        kind, marks = "buckets", {}
    else:
        kind, step_s, buckets = "marks", None, {}
        marks = {row.fire.key: mark(row, REASON_MAX) for row in rows}
    span = {"since": iso(since.replace(microsecond=0)), "until": iso(now.replace(microsecond=0))}
    return {"timeline": {"kind": kind, **span, "step_s": step_s}, "marks": marks, "buckets": buckets}


def _attention(overview: status.Overview) -> Iterator[dict[str, Any]]:
    for failure in overview.failing:
        row = failure.last
        reason = row.outcome.reason or row.outcome.kind if row.outcome else ""
        yield _about_fire("failing", row, iso(row.over_at), reason) | {"times": failure.times}
    for late in overview.late:
        about = {"what": "late", "job": late.job, "since": iso(late.due_at), "times": late.times}
        yield about | {"text": late.why or "it has not started"}
    for one in overview.unserved:
        text = f"no live node serves queue {one.queue}"
        yield {"what": "unserved", "queue": one.queue, "times": one.waiting, "text": text}
    for row in overview.retrying:
        said = f"{row.outcome.kind}: {row.outcome.reason}" if row.outcome else "failed"
        yield _about_fire("retrying", row, iso(row.run_at), f"attempt {row.attempt} {said}")
    for text in remarks(overview.nodes):
        yield {"what": "node", "times": 1, "text": text}


def _about_fire(what: str, row: Row, since: str | None, text: str) -> dict[str, Any]:
    return {"what": what, "job": row.fire.job, "fire": row.fire.key, "since": since, "times": 1, "text": text}
