"""The warden, a small program that starts work and ends it in time, and its clients."""
