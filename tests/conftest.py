"""For all tests: signals as a person's terminal has them, and no test that is judged by its speed."""

import signal

from hypothesis import settings

# A shell that starts the tests in the background has SIGINT ignored, and so would every process of theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("detent", deadline=None)
settings.load_profile("detent")
