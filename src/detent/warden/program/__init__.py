"""What the warden is made of: the standard library only, so that it runs without the package."""
