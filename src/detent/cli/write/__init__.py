"""Verbs that write and check manifests."""
