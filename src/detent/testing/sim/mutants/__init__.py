"""Planted bugs: each breaks one rule, and the simulator must find each of them.

A bug that shows only in certain scenarios names one of them; the search for it starts there.
"""

from detent.testing.sim.mutants import drivers, engines, nodes
from detent.testing.sim.mutants.registry import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant", "drivers", "engines", "nodes"]
