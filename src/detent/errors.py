"""The exceptions that detent raises.  A message names the thing, the wrong value and the fix."""


class DetentError(Exception):
    """Base class of the others."""


class UsageError(DetentError, ValueError):
    """An argument, a manifest or a command is wrong; the caller can fix it."""


class StoreUnavailable(DetentError, OSError):
    """The store did not answer.  The call may or may not have taken effect."""


class StoreMismatch(DetentError):
    """The store must not be used: it has a newer schema, is on a network disk, or is not ours."""


class HostError(DetentError):
    """An outside scheduler is missing or refused a request."""


class SignatureError(DetentError):
    """The signature of a request is missing, malformed, stale or wrong."""

    status = 401  # of the HTTP response


class BackendError(DetentError):
    """Raised by tasks when a service they depend on is down.  Circuit breakers count it."""
