"""`@reboot` jobs: such a job fires once per boot of its host, when a node that serves it first starts there.

- The kernel's boot id identifies a boot.  In a container it is the host's: a restarted container does not
  fire again, unless it gets another host name and the job has `run_on: every`.
- The key of the fire contains the boot id, so the store records it once.  Fires are pruned, so a note for
  each host and job remembers the last boot for good.
- The fire of a paused job is recorded and cancelled with that reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from detent.model import Fire, Job
from detent.rules.planning import UNPLANNED_START_S, fire_at, run_id
from detent.schedules.timetable import fires_at_boot
from detent.stores.base import PAUSE, Store, app_of

BOOT = "boot/"  # the prefix of notes that hold the boot for which a job on a host fired last
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
DIGITS = 12

_UNTIL_ENDED_S = 60.0  # a fire of a paused job must not start before it is cancelled


def read_boot_id(file: Path = BOOT_ID) -> str:
    """Return the id of this boot, or "" if the kernel does not tell."""
    try:
        return file.read_text().strip().replace("-", "")[:DIGITS]
    except OSError:
        return ""


def boot_fire(job: Job, boot: str, now: datetime) -> Fire:
    key = f"{job.name}@boot-{boot}"
    start_by = now + timedelta(seconds=UNPLANNED_START_S)
    return fire_at(job, now)._replace(key=key, run_id=run_id(now, key), origin="manual", start_by=start_by)


def jobs_at_boot(jobs: Iterable[Job], queues: tuple[str, ...], now: datetime) -> list[Job]:
    return [job for job in jobs if job.queue in queues and fires_at_boot(job.schedule, now)]


def put_boot_fires(store: Store, host: str, boot: str, jobs: list[Job], now: datetime) -> None:
    """Record the fires of this boot that are not recorded yet.  Idempotent."""
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
