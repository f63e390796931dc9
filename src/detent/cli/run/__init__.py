"""Verbs that run jobs."""
