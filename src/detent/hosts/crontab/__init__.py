"""Jobs in a crontab."""
