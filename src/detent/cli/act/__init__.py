"""Verbs that change what runs."""
