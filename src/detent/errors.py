"""What can go wrong, as types.  A message names the thing, the bad text and the fix."""


class DetentError(Exception):
    """Everything that detent raises on purpose."""


class UsageError(DetentError, ValueError):
    """Something that was given to us is wrong, and can be put right by whoever gave it."""


class StoreUnavailable(DetentError, OSError):
    """The store did not answer.  Whether the call was carried out is unknown."""


class StoreMismatch(DetentError):
    """The store is there, but not one that we may use: a newer schema, a network disk, not ours."""


class HostError(DetentError):
    """An outside scheduler refused, or is not there."""


class SignatureError(DetentError):
    """A signed request that is not what it says."""


class BackendError(DetentError):
    """For tasks to raise, or to derive from: what they depend on is down.  Circuit breakers count it."""
