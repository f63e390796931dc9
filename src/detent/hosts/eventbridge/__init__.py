"""Jobs as EventBridge schedules."""
