"""What the verbs for host schedulers share: options, the state of a host, and texts."""

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
from detent.errors import UsageError
from detent.hosts.base import SPEC_DIR, Host, Settings, record_change
from detent.hosts.reconcile import Change, Found, Resource, app_of, pending, reconcile
from detent.hosts.registry import HOSTS, REMOTE, HostOption, host_options, open_host
from detent.loading import sources
from detent.loading.config import explicit_store, load_machine, state_directory
from detent.loading.foreign import local_timezone
from detent.manifest.canonical import without_password
from detent.manifest.check import Manifest
from detent.manifest.spec import Spec, specs_of
from detent.model import Request
from detent.text import listed, quote
from detent.views.formatting import printable

_SQLITE = "sqlite:///"
_DONE = {"create": "created", "update": "updated", "delete": "deleted"}


class HostState(NamedTuple):
    """A manifest and how a host differs from it."""

    manifest: Manifest
    host: Host
    specs: list[Spec]
    changes: list[Change]  # that would make the host agree with the manifest
    served_at: str = ""  # the URL at which the app serves the manifest

    def warnings(self) -> list[str]:
        return [*self.host.warnings(self.specs), *_unsigned_warnings(self.specs, self.served_at)]


def add_host_options(parser: argparse.ArgumentParser, verb: str = "") -> None:
    """For verbs that compare a host scheduler with a manifest."""
    add_manifest_options(parser)
    parser.add_argument("--store", metavar="URL", help="the store of the triggers (default: the manifest's)")
    parser.add_argument("--host", choices=HOSTS, required=True, help="the host scheduler")
    _add_spec_dir(parser)
    about = "the program that the entries run (default: this one)"
    parser.add_argument("--detent", metavar="PATH", help=about)
    _add_options(parser, [known for known in host_options() if known.option.only in ("", verb)])


def add_host_filter(parser: argparse.ArgumentParser, about: str, *, required: bool = False) -> None:
    """For verbs that read what a host scheduler has."""
    parser.add_argument("--host", choices=HOSTS, required=required, help=about)
    about = "with --host: only of this app (default: the manifest's)"
    parser.add_argument("--app", metavar="APP", help=about)
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


def read_host_states(args: argparse.Namespace) -> Iterator[HostState]:
    """Yield the state of each app of the manifest; the host is locked until the next one."""
    for manifest in read_manifests(args):
        host = host_for(args, manifest.app)
        specs = _specs(args, manifest)
        desired = host.render(specs)
        with host.lock():
            changes = pending(reconcile(manifest.app, desired, host.find()))
            served_at = args.file if sources.is_url(args.file or "") else ""
            yield HostState(manifest, host, specs, changes, served_at)


def _unsigned_warnings(specs: list[Spec], served_at: str) -> Iterator[str]:
    """Warn of unsigned requests to an app that gets signed ones, too, or that serves the manifest."""
    works = [(spec.name, spec.job.work) for spec in specs if isinstance(spec.job.work, Request)]
    signed = {_origin(work.url) for _, work in works if work.secret_refs} | {_origin(served_at)}
    for name, work in works:
        if not work.secret_refs and _origin(work.url) in signed:
            yield (
                f"{name}: its requests to {_origin(work.url)} are not signed, and an app that requires"
                " signatures rejects them; name the secret in auth.secret_refs, or with --secret-ref"
            )


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()


def read_desired(args: argparse.Namespace) -> Iterator[Resource]:
    """Render the entries without reading the host."""
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
    """Make the path of a SQLite store absolute: a trigger starts in another directory."""
    path = url.removeprefix(_SQLITE)
    return f"{_SQLITE}{Path(path).absolute()}" if path and path != url else url


def host_for(args: argparse.Namespace, app: str) -> Host:
    env = dict(os.environ)
    known = {known.option.name.replace("-", "_"): known for known in host_options()}
    options = {name: value for name in known if (value := getattr(args, name, None))}
    for name in options:
        if args.host not in known[name].hosts:
            option, hosts = name.replace("_", "-"), listed(known[name].hosts)
            raise UsageError(f"--{option} is only for --host {hosts}, not for {args.host}: leave it out")
    zone, _ = local_timezone({})  # without this shell's TZ, which cron and systemd do not see
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
    if named := args.spec_dir or env.get("DETENT_SPEC_DIR"):
        return Path(named).absolute()
    if os.geteuid() == 0:
        return SPEC_DIR
    settings = env.get("XDG_CONFIG_HOME", "")
    home = Path(settings) if settings.startswith("/") else Path("~/.config").expanduser()
    return home / "detent" / "jobs"


def _program() -> str:
    """The absolute path of this program."""
    own = Path(sys.argv[0])
    for path in (own if own.name == "detent" else None, Path(sys.executable).with_name("detent")):
        if path and path.is_file() and os.access(path, os.X_OK):
            return str(path.absolute())
    found = shutil.which("detent")
    if found is None:
        raise UsageError("cannot find the program `detent`: name it with --detent PATH")
    return str(Path(found).absolute())


def refuse_foreign(changes: list[Change]) -> None:
    names = [change.name for change in changes if change.state == "foreign"]
    if names:
        advice = "remove it, or replace it with `detent adopt`"
        names_text = listed([quote(name) for name in names], "and")
        raise UsageError(f"{names_text} was not written by detent; nothing was changed: {advice}")


def record_changes(args: argparse.Namespace, verb: str, where: str, done: list[Change]) -> None:
    """Log the changes for `detent history --host`."""
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


def print_changes(changes: list[Change]) -> None:
    for change in changes:
        print(f"{_DONE[change.action]} {change.name}")


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
    """Its content without passwords; a spec is indented."""
    if one is None:
        return None
    content = one.content
    if one.kind == "spec":
        with suppress(ValueError):  # it was edited and is invalid
            content = json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    return display_text(content)


def display_text(text: str) -> str:
    """The text without passwords and control characters; keeps lines and indentation."""
    lines = (without_password(line) for line in text.rstrip("\n").split("\n"))
    return "\n".join(line[: len(line) - len(line.lstrip(" "))] + printable(line) for line in lines)
