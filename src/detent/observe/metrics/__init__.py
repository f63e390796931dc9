"""Metrics: the series of a node, and of a whole store."""
