"""When a job is due: cron expressions, time zones, intervals and single instants."""
