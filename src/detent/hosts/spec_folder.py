"""The folder of spec files that triggers on this machine read: `<app>.<job>.json`, one a job.

A spec has no place for a mark.  It is ours where something on the host that carries our mark rings for its
job; any other is foreign, and in the way only where it says something else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from detent.errors import HostError, UsageError
from detent.hosts.base import write_atomically
from detent.hosts.reconcile import Change, Found, Resource
from detent.manifest.check import check_manifest
from detent.manifest.spec import Spec
from detent.messages.strict_json import decode

KIND = "spec"
SUFFIX = ".json"
PUBLIC, PRIVATE = 0o644, 0o600


def spec_resources(specs: Sequence[Spec]) -> list[Resource]:
    """The specs as things that a host should have."""
    return [Resource(spec.file_name, spec.name, spec.revision, spec.text, KIND) for spec in specs]


class SpecFolder:
    """Spec files in one folder."""

    def __init__(self, path: Path, owner: str = "") -> None:
        self._path = path
        self._owner = owner  # who rings, and has to read them; "": whoever writes them

    def find(self, ours: Collection[str]) -> list[Found]:
        """Every spec; `ours` are the jobs that something with our mark rings for."""
        try:
            files = sorted(file for file in self._path.iterdir() if file.suffix == SUFFIX)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [self._found(file, ours) for file in files if not file.name.startswith(".")]

    def _found(self, file: Path, ours: Collection[str]) -> Found:
        job = file.name.removesuffix(SUFFIX)
        try:
            content = file.read_bytes().decode("utf-8", "surrogateescape")
        except PermissionError:
            raise HostError(f"cannot read {file}: permission denied; use the account that wrote it") from None
        revision = _revision(content, job)
        return Found(
            name=file.name,
            content=content,
            job=job if job in ours else "",
            revision=revision,
            intact=bool(revision),
            kind=KIND,
        )

    def change(self, changes: Sequence[Change], private: Mapping[str, bool]) -> None:
        """`private` says of each job whether its spec is for its owner's eyes only."""
        for change in changes:
            path = self._path / change.name
            try:
                if change.action == "delete":
                    path.unlink(missing_ok=True)
                elif change.after and change.action in ("create", "update"):
                    self._write(path, change.after.content, private.get(change.job, False))
            except PermissionError:
                advice = "use sudo, or choose a folder of yours with --spec-dir"
                raise HostError(f"cannot write {path}: permission denied; {advice}") from None

    def _write(self, path: Path, content: str, is_private: bool) -> None:
        mode = PRIVATE if is_private else PUBLIC
        if path.exists() and is_private:
            path.chmod(mode)  # what was public so far may hold a password now
        write_atomically(path, content.encode("utf-8", "surrogateescape"), mode, self._owner)


def _revision(content: str, job: str) -> str:
    """Of the job in a spec; "": it is none that we would have written."""
    try:
        manifest = check_manifest(decode(content))
    except (ValueError, UsageError):
        return ""
    return next((one.revision for one in manifest.jobs if one.name == job), "")
