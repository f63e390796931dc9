"""Faults planted in the warden: see `planted.py`.  Imported by a warden, with `wardenry` on its path."""

import math
import os
from contextlib import suppress

from wardenry import cgroups, charge, ending, mourner, trees


def end_the_command_alone() -> None:
    """As the parent-death signal does."""

    def only_main(pid: int, signum: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)

    for kind, main in ((cgroups.Cgroup, "main"), (trees.Descent, "_main")):
        kind.signal = lambda self, signum, main=main: only_main(getattr(self, main), signum)
        kind.is_empty = lambda self: True


def forget_children() -> None:
    charge.Command.is_gone = lambda self: self.status is not None


def trust_for_ever() -> None:
    kill_at, begin = ending.kill_at, ending.begin

    def trusting(terms: ending.Terms) -> ending.Terms:
        return terms._replace(trusted_by=math.inf, term_by=math.inf)

    charge.ending.begin = lambda terms, *rest: begin(trusting(terms), *rest)
    charge.ending.kill_at = lambda terms, *rest: kill_at(trusting(terms), *rest)


def leave_all_behind() -> None:
    mourner.mourn = lambda life: None


PLANTED = {
    "nobody-mourns": leave_all_behind,
    "parent-death-only": end_the_command_alone,
    "gone-with-its-command": forget_children,
    "trusted-for-ever": trust_for_ever,
}
