"""Verbs for host schedulers."""
