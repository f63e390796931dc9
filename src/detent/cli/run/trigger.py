"""`detent trigger`: runs one fire of a job on behalf of a host scheduler, once in the fleet.

- The job comes from a spec file, which `detent apply` writes, or from a manifest.
- A host starts this program for every fire, and its start-up is most of the cost.  So plain options are
  parsed without argparse, and modules that few triggers need are imported late.
- Exit codes: 0 succeeded or nothing due; 1 rejected; 2 no attempt left; 3 not tried; 4 another process has
  the fire, or the lane is full; 128 + n stopped by signal n.
"""

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from json import loads
from typing import TYPE_CHECKING, Any, NamedTuple

from detent import clock
from detent.errors import StoreMismatch, StoreUnavailable, UsageError
from detent.events import Emit
from detent.loading.config import (
    DATABASE,
    call_store,
    explicit_store,
    load_machine,
    load_manifest,
    state_path,
)
from detent.manifest.check import Manifest, check_manifest, jobs_on
from detent.model import Job, Push, Request
from detent.observe.logs import log_to
from detent.schedules.timetable import parse_instant
from detent.stores.registry import open_store
from detent.text import is_too_deep, percent_encoded
from detent.trigger.claims import Ports, TriggerClaims
from detent.trigger.exit_codes import CONTENDED, INTERNAL, OK, TEMPFAIL
from detent.trigger.locks import TriggerLocks
from detent.trigger.trigger import Trigger, TriggerOptions
from detent.trigger.work import WorkRunner, WorkSettings
from detent.warden.signals import Signals

if TYPE_CHECKING:
    import argparse

EXAMPLE = "detent trigger demo.backup -f detent.yaml"
SPEC_DIR = "/etc/detent/jobs"
MINUTE_DIGITS = 8  # of the minutes since 1970, until the year 2160
FLAGS = {"--tempfail": "exit with 75 instead of 4", "--contended-ok": "exit with 0 instead of 4"}
OTEL = "--otel"  # also with a value, after an equals sign
VALUES = {
    "--spec-dir": ("DIR", "the directory of the specs (default: $DETENT_SPEC_DIR, /etc/detent/jobs)"),
    "--file": ("FILE", "take the job from this manifest instead of a spec"),
    "--store": ("URL", "the store's URL (default: the spec's; for scope host, this host's own)"),
    "--lock-dir": ("DIR", "the directory of this host's locks (default: $DETENT_LOCK_DIR, /run/detent)"),
    "--rang-at": ("TIME", "when the host scheduler fired, or the name of a Kubernetes Job"),
    "--due": ("TIME", "run exactly this instant, whatever the schedule says"),
}
SHORT = {"-f": "--file", "-o": "--output"}


class Arguments(NamedTuple):
    """The command line; each field is the option of that name."""

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
    otel: str = ""

    @property
    def names(self) -> dict[str, str]:
        app, _, job = self.job.partition(".")
        return {"app": app, "job": job}


def add_options(parser: "argparse.ArgumentParser") -> None:
    parser.add_argument("job", metavar="APP.JOB", help="the job to run")
    for name, (metavar, about) in VALUES.items():
        names = [short for short, long in SHORT.items() if long == name]
        default = Arguments._field_defaults[name[2:].replace("-", "_")]
        parser.add_argument(*names, name, metavar=metavar, default=default, help=about)
    for name, about in FLAGS.items():
        parser.add_argument(name, action="store_true", help=about)
    about = "export a trace of the fire and its attempts, or write it to =file:PATH (needs detent[otel])"
    parser.add_argument(OTEL, nargs="?", const="otlp", default="", metavar="=file:PATH", help=about)


def main(args: "argparse.Namespace") -> int:
    return trigger(Arguments(**{name: getattr(args, name) for name in Arguments._fields}))


def run(words: list[str]) -> int | None:
    """Run without argparse; None if the options are not plain."""
    args = parse(words)
    return None if args is None else trigger(args)


def parse(words: list[str]) -> Arguments | None:
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
        elif name == OTEL:
            fields[field] = value or "otlp"
        elif word.startswith("-") or "job" in fields:
            return None
        else:
            fields["job"] = word
    is_plain = "job" in fields and fields.get("output", "text") in ("text", "json")
    return Arguments(**fields) if is_plain else None


def trigger(args: Arguments) -> int:
    """Return the exit code; other errors than those of the store are reported by the command line."""
    try:
        code = _fire(args)
    except (StoreUnavailable, StoreMismatch) as error:
        _log(args)("store-unavailable", **args.names, error=str(error))
        return INTERNAL
    if code != CONTENDED:
        return code
    return OK if args.contended_ok else TEMPFAIL if args.tempfail else CONTENDED


def _fire(args: Arguments) -> int:
    started_at, env = clock.now(), dict(os.environ)
    manifest = _manifest(args, env)
    job, scope = _job(manifest, args.job)
    options = TriggerOptions(scope, _scheduled_for(args.rang_at), _instant(args.due), started_at)
    url = _store_url(args, manifest, scope, env)
    emit, traces, signals = _log(args), None, Signals()
    store = open_store(url, manifest.store.key_prefix, manifest.store.wait_replicas, is_lean=True)
    if args.otel:
        from detent.observe.traces import exported_traces
        from detent.observe.watched_store import Watch, watched_store

        unsent = partial(emit, "traces-unsent", **args.names)
        traces = exported_traces(args.otel, env, lambda error: unsent(error=error), is_brief=True)
        store = watched_store(store, Watch(ended=traces.ended))
    locks = TriggerLocks(_lock_directory(args, job, scope, env), manifest.node.id or os.uname().nodename)
    inherited = {name: env[name] for name in ("TRACEPARENT", "TRACESTATE") if env.get(name)}
    settings = WorkSettings(
        env=env,
        secrets=manifest.secrets,
        hidden=_secret_variables(manifest, job),
        trace=traces.variables if traces else lambda claim: inherited,
        store=partial(call_store, manifest, args.store, env),
    )
    runner = WorkRunner(store, locks, signals, settings, emit)
    claims = TriggerClaims(job, scope, Ports(store, locks, signals, runner, emit, clock.boottime))
    try:
        code = Trigger(job, options, store, claims).fire()
        claims.prune(manifest.node.keep_days, manifest.node.keep_fires)
        return code
    finally:
        runner.close()
        locks.end()
        store.close()
        if traces:
            traces.close()


def _log(args: Arguments) -> Emit:
    if args.output == "json" or not sys.stderr.isatty():
        return log_to(sys.stderr, "json")
    return log_to(sys.stderr, "plain" if os.environ.get("NO_COLOR") else "coloured")


def _scheduled_for(text: str) -> datetime | None:
    """Parse a time, or the name of a Kubernetes Job: those of a CronJob end in the minute since 1970."""
    if not text or text[:4].isdigit():
        return _instant(text)
    minute = text.rpartition("-")[2]
    has_minute = len(minute) == MINUTE_DIGITS and minute.isascii() and minute.isdigit()
    return datetime.fromtimestamp(int(minute) * 60, UTC) if has_minute else None


def _instant(text: str) -> datetime | None:
    return parse_instant(text, "time") if text else None


def _manifest(args: Arguments, env: Mapping[str, str]) -> Manifest:
    if args.file:
        from detent.loading.sources import read_manifest

        return read_manifest(args.file, env)
    return _read_spec(f"{args.spec_dir or env.get('DETENT_SPEC_DIR') or SPEC_DIR}/{args.job}.json", env)


def _read_spec(path: str, env: Mapping[str, str]) -> Manifest:
    """Read the manifest of one job.  An invalid one is read again with line numbers, for the error."""
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
    if name in manifest.disabled:
        raise UsageError(f"{name} is disabled in the manifest; enable it first")
    for job in jobs_on(manifest, os.uname().nodename):
        if job.name.partition("/")[0] == name:
            _check_no_chain(name, manifest)
            return job, loads(manifest.canonical[name])["policy"]["concurrency_scope"]
    raise UsageError(f"no job {name}: name it as app.job, such as {next(iter(manifest.canonical))}")


def _check_no_chain(name: str, manifest: Manifest) -> None:
    """A trigger runs one job: it cannot run those that come after it."""
    for other in manifest.jobs:
        if name in other.after or (other.after and other.name == name):
            first = other.after[0] if other.name == name else name
            raise UsageError(f"{other.name} comes after {first}: that needs a node, such as `detent run`")


def _secret_variables(manifest: Manifest, job: Job) -> set[str]:
    has_refs = isinstance(job.work, Request | Push) and job.work.secret_refs
    if not has_refs and not job.hooks and not manifest.secrets:
        return set()
    from detent.manifest.secret_refs import refs_of, secret_variables

    refs = refs_of([job])
    return secret_variables([*refs, *manifest.secrets], manifest.secrets)


def _store_url(args: Arguments, manifest: Manifest, scope: str, env: Mapping[str, str]) -> str:
    """The shared store for scope global; this host's own for scope host, unless one is named."""
    explicit = explicit_store(args.store, env)
    url = explicit or manifest.store.url
    if scope == "global" and not url:
        raise UsageError(
            f"{args.job} has concurrency_scope global, but no shared store is named: "
            "name it in the manifest, with --store or with $DETENT_STORE"
        )
    if scope == "global" or explicit or url.startswith("sqlite:"):
        return url
    directory = state_path(env)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return f"sqlite:///{directory}/{DATABASE}"


def _lock_directory(args: Arguments, job: Job, scope: str, env: Mapping[str, str]) -> str:
    """The directory of the job's locks; "" if none is writable and a shared store replaces them."""
    named = args.lock_dir or env.get("DETENT_LOCK_DIR", "")
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
