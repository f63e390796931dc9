"""Bugs planted in the warden: see `planted.py`.  A warden imports this, with `program` on its path."""

import math
import os
from contextlib import suppress

from program import cgroups, deadlines, process_trees, reaper, task


def end_the_command_alone() -> None:
    """As the parent-death signal does."""

    def only_main(pid: int, signum: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)

    for kind, main in ((cgroups.Cgroup, "main"), (process_trees.DescentTree, "_main")):
        kind.signal = lambda self, signum, main=main: only_main(getattr(self, main), signum)
        kind.is_empty = lambda self: True


def forget_children() -> None:
    task.CommandTask.is_gone = lambda self: self.status is not None


def trust_for_ever() -> None:
    kill_at, begin = deadlines.kill_at, deadlines.begin

    def trusting(terms: deadlines.Terms) -> deadlines.Terms:
        return terms._replace(trusted_by=math.inf, term_by=math.inf)

    task.deadlines.begin = lambda terms, *rest: begin(trusting(terms), *rest)
    task.deadlines.kill_at = lambda terms, *rest: kill_at(trusting(terms), *rest)


def leave_all_behind() -> None:
    reaper.start_reaper = lambda instance: None


PLANTED = {
    "no-reaper": leave_all_behind,
    "parent-death-only": end_the_command_alone,
    "gone-with-its-command": forget_children,
    "trusted-for-ever": trust_for_ever,
}
