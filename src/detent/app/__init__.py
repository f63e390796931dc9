"""The API for apps in Python: `Detent`, its decorators, locks and tests."""
