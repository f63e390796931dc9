"""A scheduler for jobs that must run once: not zero times, not twice, not on top of each other."""

__version__ = "0.1.0"
