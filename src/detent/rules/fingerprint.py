"""A short hash of a set of jobs, by which nodes see whether they hold the same.  Pure.

A job with `run_on: every` counts once, whatever host's it is: hosts differ, manifests need not.
"""

from collections.abc import Iterable
from hashlib import sha256

DIGITS = 12


def fingerprint(revisions: Iterable[tuple[str, str]]) -> str:
    """Of jobs by name and revision, in any order; of none an empty text."""
    lines = sorted({f"{name.partition('/')[0]} {revision}" for name, revision in revisions})
    return sha256("\n".join(lines).encode()).hexdigest()[:DIGITS] if lines else ""
