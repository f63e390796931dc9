"""The warden itself: it imports the standard library only, so that it runs without the package."""
