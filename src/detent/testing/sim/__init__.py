"""The simulator: whole fleets in virtual time, and a checker of the guarantees."""
