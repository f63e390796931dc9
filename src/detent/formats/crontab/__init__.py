"""Crontabs."""
