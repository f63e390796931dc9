"""Read models for the CLI and the dashboard: what the store and the manifest say, in one set of words."""
