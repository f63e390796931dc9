"""Other verbs."""
