"""Reads configuration, manifests and foreign files from disk or a URL."""
