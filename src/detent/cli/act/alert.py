"""`detent alert test`: sends a test alert to all addresses of a manifest, or to one job or address."""

import argparse
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from detent import clock
from detent.cli.context import add_manifest_options, has_manifest, read_manifest
from detent.cli.tables import coloured, write_json
from detent.errors import UsageError
from detent.loading.config import load_machine
from detent.manifest.alerts import AlertText, address_fault, alert_text, make_alert, service_of
from detent.model import Alert, Job
from detent.rules.planning import fire_at, hook_fire
from detent.runners.alert import send_alert, service_fault
from detent.views.lookup import find_job, job_of

EXAMPLE = "detent alert test backup"
OUTCOMES = {"on_failure": "failed", "on_success": "succeeded", "on_skip": "skipped", "on_late": ""}
REASON = "a test alert: no job failed"


class Sample(NamedTuple):
    name: str  # for people, without the address
    alert: Alert
    text: AlertText


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["test"], help="send a test alert")
    about = "a job of the manifest, or an address (default: every address of the manifest)"
    parser.add_argument("what", nargs="?", default="", metavar="JOB|ADDRESS", help=about)
    add_manifest_options(parser)


def main(args: argparse.Namespace) -> int:
    env, samples, secrets = dict(os.environ), *_samples(args)
    ends = [(one.name, send_alert(one.alert, one.text, secrets, env)) for one in samples]
    errors = [end.outcome.reason or None for _, end in ends]
    if args.output == "json":
        named = zip(ends, errors, strict=True)
        write_json([{"alert": name, "sent": not error, "error": error} for (name, _), error in named])
    for name, end in ends if args.output != "json" else ():
        verdict = coloured("failed", "red") if end.outcome.reason else coloured("sent", "green")
        print(f"{verdict}: {name}: {end.outcome.reason or f'{end.took_s:.1f} s'}")
    return 1 if any(errors) else 0


def _samples(args: argparse.Namespace) -> tuple[list[Sample], Mapping[str, str]]:
    """The alerts to send, and the table of secrets that their addresses refer to."""
    if service_of(args.what):
        manifest = read_manifest(args.file, args.secret_ref) if args.file or has_manifest() else None
        secrets = manifest.secrets if manifest else load_machine(os.environ).secrets
        return [_of_address(args.what)], secrets
    manifest = read_manifest(args.file, args.secret_ref)
    jobs = [job_of(manifest, find_job(manifest, args.what))] if args.what else manifest.jobs
    found = {one.alert: one for job in reversed(jobs) for one in _of_job(job)}
    if not found:
        subject = args.what or f"the manifest of {manifest.app}"
        raise UsageError(f"{subject} has no alerts: add one, such as `on_failure: slack://…`")
    return [*reversed(found.values())], manifest.secrets


def _of_address(address: str) -> Sample:
    message, advice = address_fault(address)
    if not message:
        message, advice = service_fault(address)
    if message:
        raise UsageError(f"{message}: {advice}")
    text = AlertText("detent: test alert", f"This is {REASON}.", "info")
    return Sample(service_of(address), make_alert(address), text)


def _of_job(job: Job) -> Iterator[Sample]:
    now = clock.now().replace(microsecond=0)
    for name, hook in job.hooks.items():
        if isinstance(hook, Alert):
            outcome = OUTCOMES[name.partition(".")[0]]
            fire = hook_fire(
                fire_at(job, now), name, now, {"outcome": outcome, "reason": REASON, "cause": ""}
            )
            yield Sample(f"{job.name} {name}", hook, alert_text(hook, fire))
