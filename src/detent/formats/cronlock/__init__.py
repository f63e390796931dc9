"""cronlock files."""
