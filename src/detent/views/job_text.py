"""Describes a job of a manifest as text, for `show` and `list`.  Pure."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from detent.manifest.alerts import has_secret, service_of
from detent.manifest.check import Manifest
from detent.manifest.fields import HOOKS
from detent.manifest.rules import address_of
from detent.text import listed, map_texts

SHORT_MAX = 60  # characters of a command in a table
_WORKS = ("request", "call", "enqueue", "command")
_SHOWN_APART = ("name", "description", "schedules", "timezone", "at", "after", *_WORKS, "enabled")


def canonical_job(manifest: Manifest, name: str) -> dict[str, Any]:
    """Return the canonical job with its texts unescaped."""
    document: dict[str, Any] = json.loads(manifest.canonical[name])
    if manifest.version > 1:  # the canonical form has `$$` for a literal dollar sign
        document = map_texts(document, lambda text: text.replace("$$", "$"))
    return document


def schedule_text(job: Mapping[str, Any]) -> str:
    """`0 2 * * *, @hourly Europe/Berlin`."""
    times = [*job.get("schedules", ()), *([f"at {job['at']}"] if "at" in job else [])]
    times += [f"after {listed(job['after'])}"] if "after" in job else []
    zone = "" if job["timezone"] == "UTC" else f" {job['timezone']}"
    return ", ".join(times) + zone


def work_text(job: dict[str, Any]) -> str:
    """A command in shell syntax, the first line of a request, or the name of a function or task."""
    if "request" in job:
        return f"{job['request']['method']} {job['request']['url']}"
    if "call" in job:
        return f"call {job['call']}"
    if "enqueue" in job:
        return f"enqueue {job['enqueue']['task']} on {job['enqueue'].get('queue', 'default')}"
    command = job.get("command", "")
    return command if isinstance(command, str) else shlex.join(command)


def shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT_MAX else line[: SHORT_MAX - 1] + "…"


def job_fields(job: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """All fields of a job as names and values, the most important first."""
    if job.get("description"):
        yield "description", job["description"]
    yield "schedule", schedule_text(job)
    work = next(work for work in _WORKS if work in job)
    yield work, work_text(job).removeprefix(f"{work} ")
    for name, value in job.get("request", {}).items():
        if name in ("headers", "body") and value:
            yield f"request.{name}", _value(value)
    for name, value in job.get("enqueue", {}).items():
        if name not in ("task", "queue"):
            yield f"enqueue.{name}", _value(value)
    for name, value in job.items():
        if name not in _SHOWN_APART:
            yield from _flat(name, [*map(_without_secret, value)] if name in HOOKS else value)


def _without_secret(hook: Any) -> Any:
    """Replace the address of an alert that contains a secret."""
    address = address_of(hook)
    if not address or not has_secret(address):
        return hook
    masked = f"{service_of(address)}://***"
    return {**hook, "to": masked} if isinstance(hook, dict) else masked


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}", inner)
    elif value not in ([], ""):
        yield path, _value(value)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
