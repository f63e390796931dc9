"""Who asks: the name that is left behind with what a person did."""

from __future__ import annotations

import getpass
import os
import socket


def who() -> str:
    """`ana@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
