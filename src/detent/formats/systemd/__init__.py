"""systemd timers and services."""
