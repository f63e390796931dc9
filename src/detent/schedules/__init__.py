"""Cron expressions, time zones and timetables: when a job is due. Pure."""
