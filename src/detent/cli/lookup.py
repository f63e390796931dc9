"""Finds what a person means: a job by its name, a fire by its key, its run id, its job or a part of it.

- A name stands for itself; a job may be named without its app.  What is almost a name is suggested,
  never taken for it.
- A part of a key or of a run id must lead to one fire.
- A job with `run_on: every` means that of this host, unless `job/host` is said; where several jobs may be
  meant, those of all hosts.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase

from detent import clock
from detent.cli.context import Context, require_store
from detent.errors import UsageError
from detent.manifest.check import Manifest, for_host
from detent.model import Job, Origin, Query, Row
from detent.stores.base import Store, find_all
from detent.text import did_you_mean, listed, quote

SCAN_MAX = 10_000  # fires looked at for a part of a name
SUGGEST_MAX = 500  # fires whose jobs are suggested for a name that is wrong
SHOWN_MAX = 5  # names in a message
NOT_HOOKS: tuple[Origin, ...] = ("schedule", "manual", "push")

_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f-]{0,27})?")
_TIME_DIGITS = 12  # of a run id: milliseconds since the epoch
_LATER = timedelta(days=1)  # a hook has its run id from the fire that called it, which was due before
_LAST_MS = 220_000_000_000_000  # in the year 8941: later, it is no instant of a fire


# Jobs.


def find_job(manifest: Manifest, text: str) -> str:
    """The name under which the store knows the job."""
    base, slash, host = text.partition("/")
    full = base if base in manifest.canonical else f"{manifest.app}.{base}"
    if full not in manifest.canonical:
        raise UsageError(f"no job {quote(base)} in the manifest{_advice(base, manifest)}")
    if full not in manifest.everywhere:
        if slash:
            raise UsageError(f"{full} does not run on every host: leave out {quote(slash + host)}")
        return full
    return f"{full}/{host or socket.gethostname()}"


def job_of(manifest: Manifest, name: str) -> Job:
    """The job of a name from `find_job`."""
    full, _, host = name.partition("/")
    if full in manifest.disabled:
        raise UsageError(f"{full} is disabled in the manifest: it does not fire before that is changed")
    job = next(job for job in manifest.jobs if job.name == full)
    return for_host(job, host) if host else job


def _advice(text: str, manifest: Manifest) -> str:
    shorts = [name.partition(".")[2] for name in manifest.canonical]
    close = did_you_mean(text, [*manifest.canonical] if "." in text else shorts)
    return close or (f"; there {_are(shorts)}" if shorts else ", which has no jobs")


def _are(names: Collection[str]) -> str:
    shown = listed([*names][:SHOWN_MAX], "and")
    more = len(names) - SHOWN_MAX
    return f"{'is' if len(names) == 1 else 'are'} {shown}" + (f" and {more} more" if more > 0 else "")


def find_stored_job(context: Context, text: str) -> str:
    """The name in the store of a job, or of a task that has messages there."""
    if context.manifest:
        task = text if text.startswith(f"{context.app}.") else f"{context.app}.{text}"
        is_task = task not in context.manifest.canonical and _has_fires(context, task)
        return task if is_task else find_job(context.manifest, text)
    store = require_store(context)
    if store.find(Query(job=text, limit=1)):
        return text
    known = {*_planned(store, store.apps()), *(row.fire.job for row in store.find(Query(limit=SUGGEST_MAX)))}
    raise UsageError(f"no job {quote(text)} in the store{did_you_mean(text, known)}; write it as app.job")


def _has_fires(context: Context, name: str) -> bool:
    return context.store is not None and bool(context.store.find(Query(job=name, limit=1)))


def apps_of(context: Context) -> list[str]:
    """The manifest's app; without a manifest, every app that the store knows."""
    if context.app or context.store is None:
        return [context.app] if context.app else []
    return context.store.apps()


def known_jobs(context: Context) -> list[str]:
    """Every job by its name in the store: those in force, and those of the manifest."""
    store = require_store(context)
    planned, manifest = _planned(store, apps_of(context)), context.manifest
    if manifest is None:
        return sorted(planned)
    seen = {name.partition("/")[0] for name in planned}
    own = [find_job(manifest, job.name) for job in manifest.jobs if job.name not in seen]
    return sorted({*planned, *own})


def _planned(store: Store, apps: Iterable[str]) -> list[str]:
    return [name for app in apps for name in store.look(app).by_job]


def find_jobs(texts: Sequence[str], known: Collection[str]) -> list[str]:
    """Those that are meant by names and by patterns such as `report-*`."""
    found: dict[str, None] = {}
    for text in texts:
        has_app = "." in text.partition("/")[0]
        meant = [name for name in known if any(fnmatchcase(one, text) for one in _aliases(name, has_app))]
        if not meant:
            shorts = sorted({_aliases(name)[-1] for name in known})
            close = did_you_mean(text, [*known] if has_app else shorts)
            raise UsageError(f"no job {quote(text)}{close or _there_are(shorts)}")
        found |= dict.fromkeys(meant)
    return [*found]


def _aliases(name: str, has_app: bool = False) -> tuple[str, str]:
    """What a job may be called, with its app or without: with its host, and without."""
    called = name if has_app else name.partition(".")[2]
    return called, called.partition("/")[0]


def _there_are(names: Collection[str]) -> str:
    return f"; there {_are(names)}" if names else "; there are none yet"


# Fires.


def find_fire(context: Context, text: str, *, to_end: bool = False) -> Row:
    """The one fire that is meant; of a job the newest that began or, `to_end`, that is not over."""
    store = require_store(context)
    for key in (text, f"{context.app}.{text}"):
        if found := store.find(Query(key=key)):
            return found[0]
    if _is_part_of_fire(context, text):
        row = _only(text, _matching(store, context, text))
    else:
        job = find_stored_job(context, text)
        row = _newest_open(store, job) if to_end else _newest(store, job)
    return fetch_fire(store, row.fire.key)


def fetch_fire(store: Store, key: str) -> Row:
    """A fire that was there a moment ago, with its output."""
    found = store.find(Query(key=key))
    if not found:
        raise UsageError(f"{key} is no longer in the store: it was pruned, or its job was changed")
    return found[0]


def _is_part_of_fire(context: Context, text: str) -> bool:
    """`deadbeef` may be a job, too."""
    jobs = context.manifest.canonical if context.manifest else {}
    return "@" in text or (f"{context.app}.{text}" not in jobs and _RUN_ID.fullmatch(text) is not None)


def _newest(store: Store, job: str) -> Row:
    rows = find_all(store, Query(job=job, origins=NOT_HOOKS, until=clock.now(), limit=SCAN_MAX))
    if not rows:
        raise UsageError(f"{job} has not been fired yet")
    return next((row for row in rows if row.attempt), rows[0])


def _newest_open(store: Store, job: str) -> Row:
    query = Query(job=job, origins=NOT_HOOKS, until=clock.now(), limit=SCAN_MAX)
    for state in ("claimed", "pending"):
        rows = find_all(store, query._replace(state=state))
        if rows:
            return _only(job, rows)
    raise UsageError(f"nothing of {job} runs or waits")


def _only(text: str, rows: list[Row]) -> Row:
    if not rows:
        raise UsageError(f"no fire {quote(text)}; `detent history` lists them")
    own = [row for row in rows if row.fire.origin != "hook"] or rows
    if len(own) > 1:
        raise UsageError(f"{quote(text)} may be several fires: there {_are([row.fire.key for row in own])}")
    return own[0]


def _matching(store: Store, context: Context, text: str) -> list[Row]:
    if "@" in text:
        job, at, rest = text.partition("@")
        name = find_stored_job(context, job)
        rows = find_all(store, Query(job=name, limit=SCAN_MAX))
        return [row for row in rows if row.fire.key.startswith(name + at + rest)]
    for query in _around(text):
        rows = find_all(store, query._replace(app=context.app))
        if found := [row for row in rows if row.fire.run_id.startswith(text)]:
            return found
    return []


def _around(run_id: str) -> Iterator[Query]:
    """A run id begins with the instant of its fire."""
    digits = run_id.replace("-", "")[:_TIME_DIGITS]
    low, high = (int(digits.ljust(_TIME_DIGITS, end), 16) for end in "0f")
    if high < _LAST_MS:
        since, until = (clock.instant(at / 1000) for at in (low, high))
        for last in (until, until + _LATER):
            yield Query(since=since - timedelta(seconds=1), until=last, limit=SCAN_MAX)
