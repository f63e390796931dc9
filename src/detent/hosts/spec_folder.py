"""The directory of spec files for triggers on this machine: `<app>.<job>.json` for each job.

A spec file has no mark.  It is managed if the host has a marked resource that triggers its job; any other is
foreign, and a conflict only if its content differs.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
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
    return [
        Resource(spec.file_name, spec.name, spec.revision, spec.text, KIND, spec.is_private) for spec in specs
    ]


class SpecFolder:
    def __init__(self, path: Path, owner: str = "") -> None:
        self._path = path
        self._owner = owner  # the user that runs triggers and must read them; "" for the current user

    def find(self, ours: Collection[str]) -> list[Found]:
        """Return all spec files; `ours` are the jobs that a marked resource triggers."""
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

    def write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.kind == KIND and change.after and change.action in ("create", "update"):
                with self._denied(change.name) as path:
                    mode = PRIVATE if change.after.is_private else PUBLIC
                    if path.exists() and mode == PRIVATE:
                        path.chmod(mode)  # the new content may have a password
                    content = change.after.content.encode("utf-8", "surrogateescape")
                    write_atomically(path, content, mode, self._owner)

    def delete(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.kind == KIND and change.action == "delete":
                with self._denied(change.name) as path:
                    path.unlink(missing_ok=True)

    @contextmanager
    def _denied(self, name: str) -> Iterator[Path]:
        path = self._path / name
        try:
            yield path
        except PermissionError:
            advice = "use sudo, or choose another directory with --spec-dir"
            raise HostError(f"cannot write {path}: permission denied; {advice}") from None


def _revision(content: str, job: str) -> str:
    """Return the revision of the job in a spec, or an empty text if detent did not write it."""
    try:
        manifest = check_manifest(decode(content))
    except (ValueError, UsageError):
        return ""
    return next((one.revision for one in manifest.jobs if one.name == job), "")
