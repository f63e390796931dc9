"""Resolves references to secrets: reads environment variables and files.

- This happens for each attempt, so that a rotated secret is used at once.
- A secret has at least 8 bytes.  `raw:` allows any length: it is for tests and test vectors.
- A reference that cannot be resolved is skipped with a warning, which never contains a secret.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from typing import NamedTuple, assert_never

from detent.manifest.secret_refs import (
    BadReference,
    File,
    Secret,
    Variable,
    display_ref,
    locate_secret,
    secret_fault,
)
from detent.text import quote

SECRET_MIN = 8  # bytes: shorter ones are refused
SECRET_ADVISED = 16  # bytes: `doctor` warns about shorter ones
FILE_MAX = 65_536  # bytes: a wrong path may name a file of any size


class Resolved(NamedTuple):
    """The secrets that were found, in the order of their references, and warnings about the others."""

    secrets: tuple[Secret, ...]
    warnings: tuple[str, ...]


def resolve(
    refs: Iterable[str], table: Mapping[str, str], env: Mapping[str, str], least: int = SECRET_MIN
) -> Resolved:
    """Return the secrets that these references name; `least` is the minimum length in bytes."""
    secrets: list[Secret] = []
    warnings: list[str] = []
    for ref in refs:
        found = _find(ref, table, env)
        is_raw = table.get(ref, ref).startswith("raw:")
        if isinstance(found, Secret) and not is_raw and len(found.key()) < least:
            found = BadReference(
                f"it has fewer than {least} bytes: use a long random text (openssl rand -hex 32)"
            )
        if isinstance(found, Secret):
            secrets.append(found)
        else:
            warnings.append(f"secret {quote(display_ref(ref))} is skipped: {found.why}")
    return Resolved(tuple(secrets), tuple(warnings))


def _find(ref: str, table: Mapping[str, str], env: Mapping[str, str]) -> Secret | BadReference:
    place = locate_secret(ref, table)
    match place:
        case Secret() | BadReference():
            return place
        case Variable(name):
            if name not in env:
                return BadReference(f"the environment variable {name} is not set")
            return _secret(env[name], f"the environment variable {name}")
        case File(path):
            return _read(path)
    assert_never(place)


def _read(path: str) -> Secret | BadReference:
    try:
        # Opening a pipe without a writer would block.
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return BadReference(f"{path} is not a regular file")
            content = file.read(FILE_MAX + 1)
    except OSError as error:
        return BadReference(f"cannot read {path}: {error.strerror}")
    except ValueError:
        return BadReference(f"{quote(path)} is not a path")
    if len(content) > FILE_MAX:
        return BadReference(f"{path} is longer than {FILE_MAX} bytes")
    return _secret(content.decode("utf-8", "surrogateescape").strip(), path)


def _secret(text: str, where: str) -> Secret | BadReference:
    problem = secret_fault(text)
    return BadReference(f"{where} {problem}") if problem else Secret(text)
