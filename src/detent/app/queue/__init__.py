"""Tasks and queues of an app: pushing messages, reading queues, claiming without a worker."""
