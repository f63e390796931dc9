"""A short hash of a set of jobs, by which nodes notice that their jobs differ."""

from collections.abc import Iterable
from hashlib import sha256

DIGITS = 12


def fingerprint(revisions: Iterable[tuple[str, str]]) -> str:
    """Hash names and revisions, in any order.  A job with `run_on: every` counts once; no jobs give ""."""
    lines = sorted({f"{name.partition('/')[0]} {revision}" for name, revision in revisions})
    return sha256("\n".join(lines).encode()).hexdigest()[:DIGITS] if lines else ""
