"""Tasks and queues, as an app in code has them: pushing messages, looking at queues, driving them by hand."""
