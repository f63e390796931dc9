"""`detent doctor`: checks whether this host, its store and its manifest can keep the guarantees.

A row is ok, weak (a guarantee has the gap that the consequence describes) or bad (something does not work, or
other users can do harm).  The exit code is 1 if a row is bad or, with `--strict`, weak.
"""

import argparse
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from detent import clock
from detent.cli.context import add_store_options, context_for, read_manifest
from detent.cli.look import doctor_host
from detent.cli.look.doctor_access import access_rows, secret_rows
from detent.cli.tables import coloured, wrapped, write_json
from detent.errors import DetentError, UsageError
from detent.loading.config import MACHINE_FILE, load_machine, nodes_directory
from detent.loading.files import STDIN
from detent.loading.foreign import read_source, source_files
from detent.loading.sources import find_place
from detent.manifest.canonical import without_password
from detent.manifest.check import Manifest
from detent.manifest.lint.work import lint_secrets
from detent.manifest.rules import OUTAGE_S
from detent.model import Call, Command, Job, Request
from detent.rules.fingerprint import fingerprint
from detent.rules.trust import time_away_s
from detent.stores.base import Diagnosis, Store
from detent.stores.registry import promise_of, upkeep_of
from detent.text import listed, plural, quote
from detent.views.context import Context
from detent.views.formatting import printable
from detent.views.nodes import Heartbeat, live_nodes

EXAMPLE = "detent doctor"
SHOWN_MAX = 5  # names in a row
STATES = {"ok": "green", "weak": "yellow", "bad": "red"}
SQLITE = "sqlite:///"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_store_options(parser)
    parser.add_argument("--strict", action="store_true", help="treat weak rows as errors: exit 1")


def main(args: argparse.Namespace) -> int:
    rows = list(_examine(args))
    if args.output == "json":
        write_json([row._asdict() for row in rows])
    else:
        _write(rows)
    refused = ("weak", "bad") if args.strict else ("bad",)
    return 1 if any(row.state in refused for row in rows) else 0


def _write(rows: list[Diagnosis]) -> None:
    width = max(len(row.what) for row in rows)
    indent = " " * (width + 8)
    for row in rows:
        head = f"{row.state:<4}  {row.what:<{width}}  "
        text = wrapped(printable(row.found), first=head, indent=indent)
        print(coloured(text[:4], STATES[row.state]) + text[4:])
        if row.consequence:
            print(wrapped(printable(row.consequence), first=indent, indent=indent))
        if row.advice:
            print(wrapped(printable(row.advice), first=f"{indent}→ ", indent=f"{indent}  "))
    counts = [f"{sum(row.state == state for row in rows)} {state}" for state in STATES]
    print(", ".join(counts))


def _examine(args: argparse.Namespace) -> Iterator[Diagnosis]:
    env = dict(os.environ)
    manifest, manifest_rows = _read_manifest(args.file, args.secret_ref)
    yield from manifest_rows
    context = context_for(manifest, args.store)
    store_rows = list(_store(context))
    yield from store_rows
    yield from promise_of(context.url, manifest.store.wait_replicas if manifest else 0)
    yield from upkeep_of(context.url)
    yield from access_rows(context.url)
    yield from _disks(context.url, nodes_directory(context.url, env))
    yield from doctor_host.host_rows()
    yield from _machine_file(env.get("DETENT_CONFIG") or MACHINE_FILE, env)
    if manifest:
        yield from _jobs(manifest.jobs)
        refs = [ref for job in manifest.jobs if isinstance(job.work, Request) for ref in job.work.secret_refs]
        yield from secret_rows(refs, manifest.secrets)
    if context.store and manifest and all(row.state != "bad" for row in store_rows):
        nodes = live_nodes(context.store, manifest.app)
        yield _nodes(nodes, manifest)
        yield from _embedded(nodes)


def _read_manifest(named: str | Path | None, secret_ref: str) -> tuple[Manifest | None, list[Diagnosis]]:
    """The manifest, unless it is missing or invalid, and the rows about its files."""
    try:
        file = find_place(named)
    except UsageError:
        return None, []
    try:
        manifest = read_manifest(file, secret_ref)
    except UsageError as error:
        found = printable(str(error).splitlines()[0])
        advice = "`detent validate` lists every problem"
        return None, [Diagnosis("manifest", "bad", found, "no node can start with it", advice)]
    if not isinstance(file, Path) or file == STDIN:  # without file permissions
        return manifest, []
    has_secrets = any(lint_secrets(read_source(file, dict(os.environ)).document))
    return manifest, [
        doctor_host.manifest_mode("manifest", one, has_secrets=has_secrets) for one in source_files(file)
    ]


def _machine_file(named: str, env: dict[str, str]) -> Iterator[Diagnosis]:
    file = Path(named)
    if file.is_file():
        secrets = load_machine(env).secrets.values()
        has_secrets = any(not text.startswith(("env:", "file:")) for text in secrets)
        yield doctor_host.manifest_mode("machine file", file, has_secrets=has_secrets)


def _store(context: Context) -> Iterator[Diagnosis]:
    shown = without_password(context.url)
    if context.store is None:
        yield Diagnosis("store", "ok", f"{shown} does not exist yet: `detent run` creates it")
        return
    try:
        yield from _answers(context.store, context.app, shown)
    except DetentError as error:
        yield Diagnosis("store", "bad", str(error), "no fire can be claimed, so nothing runs")


def _answers(store: Store, app: str, shown: str) -> Iterator[Diagnosis]:
    sent, began = clock.now(), clock.monotonic()
    now = store.look(app).now
    took_s = clock.monotonic() - began
    yield Diagnosis("store", "ok", f"{shown} answers in {took_s * 1000:.0f} ms")
    yield doctor_host.clock_offset((sent - now).total_seconds() + took_s / 2)


def _disks(url: str, outputs: Path) -> Iterator[Diagnosis]:
    if outputs.exists():
        yield doctor_host.directory_mode("state directory", outputs.absolute())
    if url.startswith(SQLITE):
        file = Path(url.removeprefix(SQLITE))
        yield doctor_host.disk_space("disk space", file.parent)
        yield from doctor_host.store_modes(file)
        if doctor_host.is_same_disk(file.parent, outputs):
            return
    yield doctor_host.disk_space("output space", outputs)


def _jobs(jobs: Iterable[Job]) -> Iterator[Diagnosis]:
    in_node = [job.name for job in jobs if isinstance(job.work, Call) and job.work.isolation != "process"]
    if in_node:
        consequence = "they cannot be killed: a call that hangs keeps its lane until its node stops"
        advice = "use `isolation: process`, the default, where you can"
        yield Diagnosis("in-process calls", "weak", _some(in_node), consequence, advice)
    short = [job.name for job in jobs if time_away_s(job.policy.claim_s, _kill_after_s(job)) < OUTAGE_S]
    if short:
        consequence = f"a store outage of less than {OUTAGE_S} s already stops their work"
        yield Diagnosis("claims", "weak", _some(short), consequence, "set `claim_seconds: 30` or more")
    else:
        yield Diagnosis("claims", "ok", f"a store outage of {OUTAGE_S} s stops no work")


def _kill_after_s(job: Job) -> float:
    return job.work.kill_after_s if isinstance(job.work, Command | Call) else 0.0


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more


def _nodes(nodes: list[Heartbeat], manifest: Manifest) -> Diagnosis:
    if not nodes:
        return Diagnosis("nodes", "weak", "no node is alive", "nothing runs", "start one: `detent run`")
    hosts = sorted({quote(node.host) for node in nodes})
    found = f"{plural(len(nodes), 'node')} on {listed(hosts, 'and')}"
    own = fingerprint((job.name, job.revision) for job in manifest.jobs)
    if any(node.fingerprint not in ("", own) for node in nodes):
        found += ", not all with the jobs of this manifest"
        consequence = "each node runs its own jobs; if a job has two definitions, the newest deploy runs"
        advice = "deploy the same manifest to all nodes, unless this is intended; see `detent nodes`"
        return Diagnosis("nodes", "weak", found, consequence, advice)
    if len({node.version for node in nodes}) > 1:
        advice = "upgrade the others; `detent nodes` lists the versions"
        return Diagnosis("nodes", "weak", f"{found}, of several versions", "fine during an upgrade", advice)
    return Diagnosis("nodes", "ok", f"{found}, with the jobs of this manifest")


def _embedded(nodes: list[Heartbeat]) -> Iterator[Diagnosis]:
    if embedded := [node.instance for node in nodes if node.is_embedded]:
        found = f"{_some(embedded)} run inside applications"
        consequence = "their work cannot be killed: it can continue after its claim is lost"
        advice = "use `detent run -f module:app` for jobs that must never run twice at once"
        yield Diagnosis("embedded nodes", "weak", found, consequence, advice)
