"""`detent show`: what a job or a whole manifest says, with its defaults filled in."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from detent import clock
from detent.cli.context import add_file, read_manifest
from detent.cli.describe import canonical, lines_of, schedule_text, short, work_text
from detent.cli.hosted import show_resources
from detent.cli.hosting import add_host_form
from detent.cli.names import find_job, job_of
from detent.cli.pauses import pause_words, pauses_beside
from detent.cli.tables import is_terminal, plain, say, write_json, write_table
from detent.cli.words import moment
from detent.config import MANIFEST_NAMES
from detent.core.canonical import without_password
from detent.core.manifest import Manifest, canonical_text
from detent.core.text import plural
from detent.errors import UsageError
from detent.module_apps import is_app

EXAMPLE = "detent show backup, detent show detent.yaml --canonical"
NEXT_SHOWN = 3
_ENDINGS = tuple({Path(name).suffix for name in MANIFEST_NAMES})


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", metavar="JOB|FILE", help="(default: the manifest ./detent.yaml)")
    parser.add_argument("--canonical", action="store_true", help="in canonical form: compact, ordered JSON")
    add_file(parser)
    parser.add_argument("--store", metavar="URL", help="with --host: the store of the triggers")
    add_host_form(parser, "how the job looks on this scheduler, and how it stands there")


def main(given: argparse.Namespace) -> int:
    if given.host:
        return show_resources(given)
    is_file = given.what is not None and _is_file(given.what)
    if is_file and given.file:
        raise UsageError(f"two manifests are named, {given.what} and {given.file}: leave one out")
    manifest = read_manifest(given.what if is_file else given.file, given.secret_ref)
    name = "" if is_file or given.what is None else find_job(manifest, given.what).partition("/")[0]
    text = manifest.canonical[name] if name else canonical_text(manifest)
    if given.canonical:
        print(text)
    elif given.output == "json":
        write_json(json.loads(text))
    elif name:
        _show_job(manifest, name)
    else:
        _show_manifest(manifest)
    return 0


def _is_file(what: str) -> bool:
    is_path = what.endswith(_ENDINGS) or what.startswith(("/", "./", "../", "http://", "https://"))
    return is_path or is_app(what)


def _show_job(manifest: Manifest, name: str) -> None:
    job = canonical(manifest, name)
    lines = [("job", name), *lines_of(job)]
    if name in manifest.disabled:
        lines.append(("state", "disabled"))
    else:
        pause = pauses_beside(manifest).get(find_job(manifest, name))
        lines += [("state", pause_words(pause, clock.now()))] if pause else []
        lines += [("next", text) for text in _coming(manifest, name)]
    width = max(len(field) for field, _ in lines)
    for field, value in lines:
        print(f"{field.ljust(width)}  {plain(value)}")


def _coming(manifest: Manifest, name: str) -> list[str]:
    now, schedule = clock.now(), job_of(manifest, name).schedule
    instants: list[str] = []
    due_at = schedule.after(now)
    while due_at is not None and len(instants) < NEXT_SHOWN:
        instants.append(moment(due_at, now, for_person=is_terminal()))
        due_at = schedule.after(due_at)
    return instants


def _show_manifest(manifest: Manifest) -> None:
    store = without_password(manifest.store.url) or "the default"
    jobs = plural(len(manifest.canonical), "job")
    say(f"app {manifest.app}, version {manifest.version}, {jobs}, store {plain(store)}")
    heads = ("job", "schedule", "work", "description")
    write_table(heads, (_row(manifest, name) for name in manifest.canonical))


def _row(manifest: Manifest, name: str) -> tuple[str, str, str, str]:
    job = canonical(manifest, name)
    return name, schedule_text(job), short(work_text(job)), job.get("description", "")
