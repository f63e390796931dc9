"""Warnings of `validate`: manifests that are correct but probably not meant. Pure."""
