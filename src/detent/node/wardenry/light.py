"""What the warden takes from others, in the form that loads fastest.

In the fork of a trigger the package is at hand, and has it; for a warden by itself there is the standard
library only, where these are the same things.  Signals and sockets are those of its C code.
"""

TYPE_CHECKING = False  # typing's own would cost every start what typing costs
if TYPE_CHECKING:
    import signal
    import socket
    from json import dumps, loads
    from typing import Any, Literal, NamedTuple, NoReturn, Protocol
else:
    import _signal as signal
    import _socket as socket

    try:
        from detent.jsontext import dumps, loads
        from detent.values import Any, Literal, NamedTuple, NoReturn, Protocol
    except ImportError:
        from json import dumps, loads
        from typing import Any, Literal, NamedTuple, NoReturn, Protocol

__all__ = ["TYPE_CHECKING", "Any", "Literal", "NamedTuple", "NoReturn", "Protocol"]
__all__ += ["dumps", "loads", "signal", "socket"]
