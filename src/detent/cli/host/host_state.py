"""What the verbs about hosts share: their options, and how a manifest stands on a host."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from detent.cli.context import add_manifest_options
from detent.cli.tables import printable
from detent.errors import UsageError
from detent.hosts.base import SPEC_DIR, Host, Settings, record_change
from detent.hosts.reconcile import Change, Found, Resource, app_of, reconcile
from detent.hosts.registry import HOSTS, REMOTE, HostOption, host_options, open_host
from detent.loading import sources
from detent.loading.config import explicit_store, load_machine, state_directory
from detent.loading.foreign import local_timezone
from detent.manifest.canonical import without_password
from detent.manifest.check import Manifest
from detent.manifest.spec import Spec, specs_of
from detent.model import Request
from detent.text import listed, quote

_SQLITE = "sqlite:///"


class HostState(NamedTuple):
    """A manifest on a host: what should be there, and how each of it stands."""

    manifest: Manifest
    host: Host
    specs: list[Spec]
    changes: list[Change]
    served_at: str = ""  # the URL at which the app serves the manifest

    def warnings(self) -> list[str]:
        """What a person should know before this is applied."""
        return [*self.host.warnings(self.specs), *_unsigned_warnings(self.specs, self.served_at)]


def add_host_options(parser: argparse.ArgumentParser, verb: str = "") -> None:
    """For verbs that compare a host scheduler with a manifest."""
    add_manifest_options(parser)
    parser.add_argument("--store", metavar="URL", help="the store of the triggers (default: the manifest's)")
    parser.add_argument("--host", choices=HOSTS, required=True, help="the host scheduler")
    _add_spec_dir(parser)
    parser.add_argument(
        "--detent", metavar="PATH", help="the program that the entries run (default: this one)"
    )
    _add_options(parser, [known for known in host_options() if known.option.only in ("", verb)])


def add_host_filter(parser: argparse.ArgumentParser, about: str, *, required: bool = False) -> None:
    """For verbs that only need to find what a host scheduler has."""
    parser.add_argument("--host", choices=HOSTS, required=required, help=about)
    parser.add_argument(
        "--app", metavar="APP", help="with --host: only of this app (default: the manifest's)"
    )
    _add_spec_dir(parser)
    _add_options(parser, [known for known in host_options() if known.option.is_location])


def _add_spec_dir(parser: argparse.ArgumentParser) -> None:
    about = f"the directory of the triggers' specs (default: $DETENT_SPEC_DIR, or {SPEC_DIR})"
    parser.add_argument("--spec-dir", metavar="DIR", help=f"with --host: {about}")


def _add_options(parser: argparse.ArgumentParser, options: list[HostOption]) -> None:
    for option, hosts in options:
        about = f"with --host {listed(hosts)}: {option.about}"
        if option.metavar:
            parser.add_argument(f"--{option.name}", metavar=option.metavar, help=about)
        else:
            parser.add_argument(f"--{option.name}", action="store_true", help=about)


# From what was given.


def read_host_states(args: argparse.Namespace) -> Iterator[HostState]:
    """How each app of the manifest stands now; its host is locked until the next is asked for."""
    for manifest in read_manifests(args):
        host = host_for(args, manifest.app)
        specs = _specs(args, manifest)
        desired = host.render(specs)
        with host.lock():
            changes = reconcile(manifest.app, desired, host.find())
            served_at = args.file if sources.is_url(args.file or "") else ""
            yield HostState(manifest, host, specs, changes, served_at)


def _unsigned_warnings(specs: list[Spec], served_at: str) -> Iterator[str]:
    """An app requires signatures where other jobs sign what they send there; one that serves its manifest
    usually does."""
    works = [(spec.name, spec.job.work) for spec in specs if isinstance(spec.job.work, Request)]
    signed = {_origin(work.url) for _, work in works if work.secret_refs} | {_origin(served_at)}
    for name, work in works:
        if not work.secret_refs and _origin(work.url) in signed:
            told = f"its requests to {_origin(work.url)} are not signed, and an app that requires signatures"
            yield f"{name}: {told} rejects them; name the secret in auth.secret_refs, or with --secret-ref"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()


def read_desired(args: argparse.Namespace) -> Iterator[Resource]:
    """What should be there; no host is asked."""
    for manifest in read_manifests(args):
        yield from host_for(args, manifest.app).render(_specs(args, manifest))


def read_manifests(args: argparse.Namespace) -> tuple[Manifest, ...]:
    return sources.read_manifests(sources.find_place(args.file), dict(os.environ), args.secret_ref)


def _specs(args: argparse.Namespace, manifest: Manifest) -> list[Spec]:
    env = dict(os.environ)
    own = manifest.store.url if "url" in manifest.machine.get("store", {}) else ""
    url = explicit_store(args.store, env) or own
    return specs_of(manifest, _absolute(url), load_machine(env))


def _absolute(url: str) -> str:
    """A trigger starts in another folder than this one."""
    path = url.removeprefix(_SQLITE)
    return f"{_SQLITE}{Path(path).absolute()}" if path and path != url else url


def host_for(args: argparse.Namespace, app: str) -> Host:
    """The host that was named, for this app."""
    env = dict(os.environ)
    known = {known.option.name.replace("-", "_"): known for known in host_options()}
    options = {name: value for name in known if (value := getattr(args, name, None))}
    for name in options:
        if args.host not in known[name].hosts:
            told = f"--{name.replace('_', '-')} is for --host {listed(known[name].hosts)}"
            raise UsageError(f"{told}, and this is {args.host}: leave it out")
    zone, _ = local_timezone({})  # cron and systemd do not know this shell's TZ
    return open_host(
        args.host,
        Settings(
            app=app,
            detent=getattr(args, "detent", None) or ("detent" if args.host in REMOTE else _program()),
            spec_dir=_spec_dir(args, env),
            state_dir=state_directory(env),
            timezone=zone,
            env=env,
            options=options,
        ),
    )


def _spec_dir(args: argparse.Namespace, env: dict[str, str]) -> Path:
    said = args.spec_dir or env.get("DETENT_SPEC_DIR")
    if said:
        return Path(said).absolute()
    if os.geteuid() == 0:
        return SPEC_DIR
    settings = env.get("XDG_CONFIG_HOME", "")
    home = Path(settings) if settings.startswith("/") else Path("~/.config").expanduser()
    return home / "detent" / "jobs"


def _program() -> str:
    """This program, by the path under which hosts find it."""
    own = Path(sys.argv[0])
    for path in (own if own.name == "detent" else None, Path(sys.executable).with_name("detent")):
        if path and path.is_file() and os.access(path, os.X_OK):
            return str(path.absolute())
    found = shutil.which("detent")
    if found is None:
        raise UsageError("where the program `detent` is, is not known: name it with --detent PATH")
    return str(Path(found).absolute())


def refuse_foreign(changes: list[Change]) -> None:
    """What is not ours is not touched."""
    names = [change.name for change in changes if change.state == "foreign"]
    if names:
        told = listed([quote(name) for name in names], "and")
        advice = "take it away, or take it over with `detent adopt`"
        raise UsageError(f"{told} was not written by detent; nothing was changed: {advice}")


def record_changes(args: argparse.Namespace, verb: str, where: str, done: list[Change]) -> None:
    """What was changed, for `detent history --host`."""
    env = dict(os.environ)
    user = env.get("SUDO_USER") or env.get("LOGNAME") or env.get("USER") or str(os.getuid())
    for change in done:
        record_change(
            state_directory(env),
            host=args.host,
            where=where,
            verb=verb,
            user=user,
            app=app_of(change.job),
            job=change.job,
            name=change.name,
            action=change.action,
            state=change.state,
        )


# In words.


def change_record(change: Change) -> dict[str, Any]:
    return {
        "name": change.name,
        "kind": change.kind,
        "job": change.job,
        "state": change.state,
        "action": change.action,
        "before": display_content(change.before),
        "after": display_content(change.after),
    }


def display_content(one: Found | Resource | None) -> str | None:
    """Its content as it may be shown: without a password; of a spec, a field a line."""
    if one is None:
        return None
    content = one.content
    if one.kind == "spec":
        with suppress(ValueError):  # somebody broke it
            content = json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    return display_text(content)


def display_text(text: str) -> str:
    """The text as a terminal may show it, its lines and their indentation kept."""
    lines = (without_password(line) for line in text.rstrip("\n").split("\n"))
    return "\n".join(line[: len(line) - len(line.lstrip(" "))] + printable(line) for line in lines)
