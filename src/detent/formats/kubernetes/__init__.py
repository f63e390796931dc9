"""Kubernetes CronJobs."""
