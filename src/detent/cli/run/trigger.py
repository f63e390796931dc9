"""`detent trigger`: a host's scheduler rings for a job, and its fire is carried out, once in the fleet.

- The job is that of a spec file (`detent apply` writes them), or of a manifest.
- Most of what it costs is the start of this program: what a ring does not need is imported late, and its
  words are read without the machinery of the other verbs, which only a wrong word or `--help` brings in.
- Exit: 0 done, or nothing is due; 1 rejected; 2 no attempt is left; 3 it could not be tried; 4 another has
  it, or the lane is full; 128 + n: ended by signal n.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.errors import DetentError, StoreMismatch, StoreUnavailable, UsageError
from detent.trigger.exit_codes import CONTENDED, INTERNAL, OK, TEMPFAIL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from datetime import datetime

    from detent.events import Emit
    from detent.manifest.check import Manifest
    from detent.model import Job
    from detent.observe.traces import Traces

EXAMPLE = "detent trigger demo.backup -f detent.yaml"
SPEC_DIR = "/etc/detent/jobs"
MINUTE_DIGITS = 8  # of the minutes since 1970, up to the year 2160
FLAGS = {  # of those that stand alone
    "--tempfail": "exit with 75 instead of 4",
    "--contended-ok": "exit with 0 instead of 4",
    "--otel": "export a trace of the fire and its attempts (needs detent[otel])",
}
VALUES = {  # of those that take a value
    "--spec-dir": ("DIR", "the directory of the specs (default: $DETENT_SPEC_DIR, /etc/detent/jobs)"),
    "--file": ("FILE", "take the job from this manifest instead of a spec"),
    "--store": ("URL", "the store's URL (default: the spec's; for scope host, this host's own)"),
    "--lock-dir": ("DIR", "the directory of this host's locks (default: $DETENT_LOCK_DIR, /run/detent)"),
    "--rang-at": (
        "TIME",
        "when the host scheduler fired, or the name of a Kubernetes Job; moved to the due time",
    ),
    "--due": ("TIME", "run exactly this instant, whatever the schedule says"),
}
SHORT = {"-f": "--file", "-o": "--output"}


class TriggerOptions(NamedTuple):
    """The words of the command line."""

    job: str
    spec_dir: str = ""
    file: str = ""
    store: str | None = None
    lock_dir: str = ""
    rang_at: str = ""
    due: str = ""
    output: str = "text"
    tempfail: bool = False
    contended_ok: bool = False
    otel: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="APP.JOB", help="the job to run")
    for name, (metavar, about) in VALUES.items():
        names = [short for short, long in SHORT.items() if long == name]
        default = TriggerOptions._field_defaults[name[2:].replace("-", "_")]
        parser.add_argument(*names, name, metavar=metavar, default=default, help=about)
    for name, about in FLAGS.items():
        parser.add_argument(name, action="store_true", help=about)


def main(args: argparse.Namespace) -> int:
    named = {name: getattr(args, name) for name in TriggerOptions._fields}
    return trigger(TriggerOptions(**named))


def run(words: list[str]) -> int | None:
    """As `main`, from the plain words; None: they are not plain enough."""
    options = read(words)
    return None if options is None else trigger(options)


def read(words: list[str]) -> TriggerOptions | None:
    fields: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        name = SHORT.get(name, name)
        field = name[2:].replace("-", "_")
        if name in VALUES or name == "--output":
            fields[field] = value if equals else next(rest, "-")
            if fields[field].startswith("-"):
                return None
        elif word in FLAGS:
            fields[field] = True
        elif word.startswith("-") or "job" in fields:
            return None
        else:
            fields["job"] = word
    is_plain = "job" in fields and fields.get("output", "text") in ("text", "json")
    return TriggerOptions(**fields) if is_plain else None


# From words to a trigger.


def trigger(options: TriggerOptions) -> int:
    """The exit code.  Whatever goes wrong before the fire is tried is told in a sentence."""
    try:
        code = _fire(options)
    except (StoreUnavailable, StoreMismatch) as error:
        _log(options)("store-unavailable", **_named(options), error=str(error))
        return INTERNAL
    except DetentError as error:
        _say(str(error))
        return INTERNAL
    except OSError as error:
        named = f": {error.filename}" if error.filename else ""
        _say(f"{error.strerror or error}{named}")
        return INTERNAL
    if code != CONTENDED:
        return code
    return OK if options.contended_ok else TEMPFAIL if options.tempfail else CONTENDED


def _named(options: TriggerOptions) -> dict[str, str]:
    app, _, job = options.job.partition(".")
    return {"app": app, "job": job}


def _say(text: str) -> None:
    print(f"detent: {text}", file=sys.stderr)


def _fire(options: TriggerOptions) -> int:
    from functools import partial

    from detent import clock
    from detent.loading.config import call_store
    from detent.stores.registry import open_store
    from detent.trigger.claims import Ports, TriggerClaims
    from detent.trigger.locks import TriggerLocks
    from detent.trigger.trigger import Trigger, TriggerOptions
    from detent.trigger.work import WorkRunner, WorkSettings
    from detent.warden.signals import Signals

    heard_at, env = clock.now(), dict(os.environ)
    manifest = _manifest(options, env)
    job, scope = _job(manifest, options.job)
    given = TriggerOptions(scope, _rang_at(options.rang_at), _instant(options.due), heard_at)
    url = _store_url(options, manifest, scope, env)
    traces = _traces(options, env)
    signals, emit = Signals(), _both(_log(options), traces.emit) if traces else _log(options)
    store = open_store(url, manifest.store.key_prefix, manifest.store.wait_replicas, is_lean=True)
    locks = TriggerLocks(_lock_directory(options, job, scope, env), manifest.node.id or os.uname().nodename)
    trace = traces.variables if traces else lambda: _trace(env)
    of_calls = partial(call_store, manifest, options.store, env)
    settings = WorkSettings(env, manifest.secrets, _hidden(manifest, job), trace, of_calls)
    runner = WorkRunner(store, locks, signals, settings, emit)
    claims = TriggerClaims(job, scope, Ports(store, locks, signals, runner, emit, clock.boottime))
    try:
        code = Trigger(job, given, store, claims).fire()
        claims.prune(manifest.node.keep_days, manifest.node.keep_fires)
        return code
    finally:
        runner.close()
        locks.end()
        store.close()
        if traces and (why := traces.close()):
            emit("traces-unsent", **_named(options), error=why)


def _traces(options: TriggerOptions, env: Mapping[str, str]) -> Traces | None:
    if not options.otel:
        return None
    from detent.observe.traces import Traces

    return Traces(env)


def _both(one: Emit, other: Emit) -> Emit:
    def emit(event: str, **fields: Any) -> None:
        one(event, **fields)
        other(event, **fields)

    return emit


def _trace(env: Mapping[str, str]) -> dict[str, str]:
    """The W3C trace context that we were started with."""
    return {name: env[name] for name in ("TRACEPARENT", "TRACESTATE") if env.get(name)}


def _log(options: TriggerOptions) -> Emit:
    from detent.observe.logs import log_to

    if options.output == "json" or not sys.stderr.isatty():
        return log_to(sys.stderr, "json")
    return log_to(sys.stderr, "plain" if os.environ.get("NO_COLOR") else "coloured")


def _rang_at(text: str) -> datetime | None:
    """A time, or the name of a Job: those of a CronJob end in the minute since 1970 that it rang for; one
    that somebody made by hand tells no time."""
    if not text or text[:4].isdigit():
        return _instant(text)
    from datetime import UTC, datetime

    minute = text.rpartition("-")[2]
    is_told = len(minute) == MINUTE_DIGITS and minute.isascii() and minute.isdigit()
    return datetime.fromtimestamp(int(minute) * 60, UTC) if is_told else None


def _instant(text: str) -> datetime | None:
    if not text:
        return None
    from detent.schedules.timetable import parse_instant

    return parse_instant(text, "time")


# The job.


def _manifest(options: TriggerOptions, env: Mapping[str, str]) -> Manifest:
    if options.file:
        from detent.loading.sources import read_manifest

        return read_manifest(options.file, env)
    return _read_spec(f"{options.spec_dir or env.get('DETENT_SPEC_DIR') or SPEC_DIR}/{options.job}.json", env)


def _read_spec(path: str, env: Mapping[str, str]) -> Manifest:
    """The manifest of one job.  One that is wrong is read again, to say where."""
    from json import loads

    from detent.loading.config import load_machine, load_manifest
    from detent.manifest.check import check_manifest
    from detent.text import is_too_deep

    try:
        with open(path, "rb") as file:
            text = file.read().decode()
        if not is_too_deep(text):
            return check_manifest(loads(text), variables=env, machine=load_machine(env))
    except FileNotFoundError:
        raise UsageError(f"no spec {path}: `detent apply` writes it, or name the manifest with -f") from None
    except ValueError:
        pass
    return load_manifest(path, env)


def _job(manifest: Manifest, name: str) -> tuple[Job, str]:
    """The job, and the scope of its lane."""
    from json import loads

    from detent.manifest.check import jobs_on

    if name in manifest.disabled:
        raise UsageError(f"{name} is disabled: it does not fire before that is changed")
    for job in jobs_on(manifest, os.uname().nodename):
        if job.name.partition("/")[0] == name:
            _check_alone(job, manifest)
            return job, loads(manifest.canonical[name])["policy"]["concurrency_scope"]
    raise UsageError(f"no job {name} there: it is named app.job, as {next(iter(manifest.canonical))}")


def _check_alone(job: Job, manifest: Manifest) -> None:
    """A trigger carries out one job: who would run what comes after it?"""
    name = job.name.partition("/")[0]
    for other in manifest.jobs:
        if name in other.after or (other.after and other.name == name):
            first = other.after[0] if other.name == name else name
            raise UsageError(f"{other.name} comes after {first}: that takes a node, such as `detent run`")


def _hidden(manifest: Manifest, job: Job) -> set[str]:
    """The variables that hold secrets."""
    from detent.model import Push, Request

    refs = job.work.secret_refs if isinstance(job.work, Request | Push) else ()
    if not refs and not manifest.secrets:
        return set()
    from detent.manifest.secret_refs import secret_variables

    return secret_variables([*refs, *manifest.secrets], manifest.secrets)


# Its places.


def _store_url(options: TriggerOptions, manifest: Manifest, scope: str, env: Mapping[str, str]) -> str:
    """Of scope global, the store that the hosts share; of scope host, this host's own."""
    from detent.loading.config import DATABASE, explicit_store, state_path

    said = explicit_store(options.store, env)
    settled = said or manifest.store.url
    if scope == "global" and not settled:
        raise UsageError(
            f"{options.job} has concurrency_scope global, and no store is named that hosts share: "
            "name it in the manifest, by --store or by $DETENT_STORE"
        )
    if scope == "global" or said or settled.startswith("sqlite:"):
        return settled
    directory = state_path(env)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return f"sqlite:///{directory}/{DATABASE}"


def _lock_directory(options: TriggerOptions, job: Job, scope: str, env: Mapping[str, str]) -> str:
    """A folder of the job's own.  "": nothing can be written here, and a store that hosts share does."""
    from detent.loading.config import state_path
    from detent.text import percent_encoded

    named = options.lock_dir or env.get("DETENT_LOCK_DIR", "")
    runtime = "/run" if os.geteuid() == 0 else env.get("XDG_RUNTIME_DIR", "")
    usual = [f"{runtime}/detent"] if runtime else []
    for place in [named] if named else [*usual, f"{state_path(env)}/locks"]:
        folder = f"{place}/{percent_encoded(job.name)}"
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            problem = error
        else:
            return folder
    if scope == "global" and not named:
        return ""
    raise UsageError(f"cannot write locks to {place}: {problem.strerror}; name another --lock-dir")
