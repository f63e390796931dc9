"""The manifest: its fields, checks, canonical form and JSON Schema. Pure."""
