"""The simulator: whole fleets in virtual time, judged by a checker."""
