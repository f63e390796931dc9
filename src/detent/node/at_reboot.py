"""`@reboot`: a job fires once for each boot of its host, when a node that serves it first starts there.

- The kernel's boot id tells one boot from another.  In a container it is the host's: a container that is
  started again does not fire again, unless it comes up under another host name and the job has
  `run_on: every`.
- The fire's key is made of the boot id, and so is recorded once.  Rows are pruned: a note for each host
  and job remembers its last boot for good.
- A paused job's fire is recorded, and ended with that reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from detent.model import Fire, Job
from detent.rules.planning import UNPLANNED_START_S, fire_at, run_id
from detent.schedules.timetable import fires_at_boot
from detent.stores.base import PAUSE, Store, app_of

BOOT = "boot/"  # a note of this name, a host's and a job's has the boot that the job last fired for
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
DIGITS = 12

_UNTIL_ENDED_S = 60.0  # a fire that is put only to be ended must not start before it is


def read_boot_id(file: Path = BOOT_ID) -> str:
    """What tells this boot from others; nothing where the kernel does not say."""
    try:
        return file.read_text().strip().replace("-", "")[:DIGITS]
    except OSError:
        return ""


def boot_fire(job: Job, boot: str, now: datetime) -> Fire:
    """The one fire of the job for this boot."""
    key = f"{job.name}@boot-{boot}"
    start_by = now + timedelta(seconds=UNPLANNED_START_S)
    return fire_at(job, now)._replace(key=key, run_id=run_id(now, key), origin="manual", start_by=start_by)


def jobs_at_boot(jobs: Iterable[Job], queues: tuple[str, ...], now: datetime) -> list[Job]:
    return [job for job in jobs if job.queue in queues and fires_at_boot(job.schedule, now)]


def put_boot_fires(store: Store, host: str, boot: str, jobs: list[Job], now: datetime) -> None:
    """Record what this boot has not fired yet.  May be repeated."""
    app = app_of(jobs[0].name)
    remembered = {note.name: note.text for note in store.notes(app, f"{BOOT}{host}/")}
    paused = {note.name.removeprefix(PAUSE) for note in store.notes(app, PAUSE)}
    for job in jobs:
        name = f"{BOOT}{host}/{job.name}"
        if remembered.get(name) == boot:
            continue
        fire, is_paused = boot_fire(job, boot, now.replace(microsecond=0)), job.name in paused
        store.put([fire], _UNTIL_ENDED_S if is_paused else 0.0)
        if is_paused:
            store.cancel(fire.key, "paused", "paused")
        store.note(app, name, boot)
