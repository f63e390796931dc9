"""Verbs that show jobs, fires and nodes."""
