"""Jobs as Kubernetes CronJobs."""
