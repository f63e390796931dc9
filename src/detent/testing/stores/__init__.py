"""The checks of `check_store`, by subject."""
