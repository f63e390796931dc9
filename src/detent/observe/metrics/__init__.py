"""Metrics: the series of a node, and of a whole store."""

from detent.observe.metrics.store_wide import render_store

__all__ = ["render_store"]
