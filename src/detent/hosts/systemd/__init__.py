"""Jobs as systemd timers."""
