"""Finds jobs and fires by what the user types.

- A job is named with or without its app.  A name that is almost right is suggested, never assumed.
- A fire is named by its key or run id, by the beginning of one if only one fire has it, or by its job.
- A job with `run_on: every` is the one of this host, or `job/host`.  A pattern matches it on all hosts.
"""

import re
import socket
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase

from detent import clock
from detent.errors import UsageError
from detent.manifest.check import Manifest, for_host
from detent.model import Job, Origin, Query, Row
from detent.stores.base import Store, find_all
from detent.text import did_you_mean, listed, quote
from detent.views.context import Context, require_store

SCAN_MAX = 10_000  # fires read to find one
SUGGEST_MAX = 500  # fires read to suggest the name of a job
SHOWN_MAX = 5  # names in a message
NOT_HOOKS: tuple[Origin, ...] = ("schedule", "manual", "push")

_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f-]{0,27})?")
_TIME_DIGITS = 12  # a run id begins with the due time in milliseconds since 1970
_LATER = timedelta(days=1)  # a hook has the run id of its fire, which was due earlier
_LAST_MS = 220_000_000_000_000  # in the year 8941: later than any fire


# Jobs.


def find_job(manifest: Manifest, text: str) -> str:
    """Return the name of a job of the manifest in the store."""
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
    """Return the job of a name from `find_job`."""
    full, _, host = name.partition("/")
    if full in manifest.disabled:
        raise UsageError(f"{full} is disabled in the manifest; enable it first")
    job = next(job for job in manifest.jobs if job.name == full)
    return for_host(job, host) if host else job


def _advice(text: str, manifest: Manifest) -> str:
    shorts = [name.partition(".")[2] for name in manifest.canonical]
    close = did_you_mean(text, [*manifest.canonical] if "." in text else shorts)
    return close or (f"; it has {_some(shorts)}" if shorts else ", which has no jobs")


def _some(names: Collection[str]) -> str:
    more = len(names) - SHOWN_MAX
    return listed([*names][:SHOWN_MAX], "and") + (f" and {more} more" if more > 0 else "")


def find_stored_job(context: Context, text: str) -> str:
    """Return the name in the store of a job, or of a task that has messages there."""
    if context.manifest:
        task = text if text.startswith(f"{context.app}.") else f"{context.app}.{text}"
        is_task = task not in context.manifest.canonical and context.store and _has_fires(context.store, task)
        return task if is_task else find_job(context.manifest, text)
    store = require_store(context)
    if _has_fires(store, text):
        return text
    known = {*_planned(store, store.apps()), *(row.fire.job for row in store.find(Query(limit=SUGGEST_MAX)))}
    raise UsageError(f"no job {quote(text)} in the store{did_you_mean(text, known)}; write it as app.job")


def _has_fires(store: Store, name: str) -> bool:
    return bool(store.find(Query(job=name, limit=1)))


def apps_of(context: Context) -> list[str]:
    """The app of the manifest; without a manifest, every app of the store."""
    if context.app or context.store is None:
        return [context.app] if context.app else []
    return context.store.apps()


def known_jobs(context: Context) -> list[str]:
    """The names in the store of all scheduled jobs and of those of the manifest."""
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
    """Return the jobs that match names or patterns such as `report-*`."""
    found: dict[str, None] = {}
    for text in texts:
        has_app = "." in text.partition("/")[0]
        matches = [name for name in known if any(fnmatchcase(one, text) for one in _aliases(name, has_app))]
        if not matches:
            shorts = sorted({_aliases(name)[-1] for name in known})
            close = did_you_mean(text, [*known] if has_app else shorts)
            there = f"; there are {_some(shorts)}" if shorts else "; there are none yet"
            raise UsageError(f"no job {quote(text)}{close or there}")
        found |= dict.fromkeys(matches)
    return [*found]


def _aliases(name: str, has_app: bool = False) -> tuple[str, str]:
    """The names of a job with its host and without."""
    alias = name if has_app else name.partition(".")[2]
    return alias, alias.partition("/")[0]


# Fires.


def find_fire(context: Context, text: str, *, to_end: bool = False) -> Row:
    """Return one fire.  For a job, the newest that started or, with `to_end`, the one that is not over."""
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
    """Read a known fire again, with its output."""
    found = store.find(Query(key=key))
    if not found:
        raise UsageError(f"{key} is no longer in the store: it was pruned, or its job changed")
    return found[0]


def _is_part_of_fire(context: Context, text: str) -> bool:
    """Whether the text is part of a key or run id; `deadbeef` can be a job, too."""
    jobs = context.manifest.canonical if context.manifest else {}
    return "@" in text or (f"{context.app}.{text}" not in jobs and _RUN_ID.fullmatch(text) is not None)


def _newest(store: Store, job: str) -> Row:
    rows = find_all(store, Query(job=job, origins=NOT_HOOKS, until=clock.now(), limit=SCAN_MAX))
    if not rows:
        raise UsageError(f"{job} has no fires yet")
    return next((row for row in rows if row.attempt), rows[0])


def _newest_open(store: Store, job: str) -> Row:
    query = Query(job=job, origins=NOT_HOOKS, until=clock.now(), limit=SCAN_MAX)
    for state in ("claimed", "pending"):
        if rows := find_all(store, query._replace(state=state)):
            return _only(job, rows)
    raise UsageError(f"no fire of {job} is running or waiting")


def _only(text: str, rows: list[Row]) -> Row:
    if not rows:
        raise UsageError(f"no fire {quote(text)}; `detent history` lists them")
    own = [row for row in rows if row.fire.origin != "hook"] or rows
    if len(own) > 1:
        keys = _some([row.fire.key for row in own])
        raise UsageError(f"{quote(text)} matches several fires: {keys}; write more of it")
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
    """Queries for the time in a run id; the second one finds hooks."""
    digits = run_id.replace("-", "")[:_TIME_DIGITS]
    low, high = (int(digits.ljust(_TIME_DIGITS, end), 16) for end in "0f")
    if high < _LAST_MS:
        since, until = (clock.instant(at / 1000) for at in (low, high))
        for last in (until, until + _LATER):
            yield Query(since=since - timedelta(seconds=1), until=last, limit=SCAN_MAX)
