"""EventBridge schedules."""
