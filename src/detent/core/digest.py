"""SHA-256, as Python itself has it: OpenSSL's takes longer to load than a trigger takes for most else."""

from collections.abc import Callable

from detent.values import Any

BLOCK = 64  # bytes
_INNER, _OUTER = (bytes(octet ^ pad for octet in range(256)) for pad in (0x36, 0x5C))


def _find() -> Callable[[bytes], Any]:
    """By its name in Python 3.11, in later ones and, where it was built without, that of `hashlib`."""
    for module in ("_sha256", "_sha2"):
        try:
            found: Callable[[bytes], Any] = __import__(module).sha256
        except ImportError:
            continue
        return found
    from hashlib import sha256

    return sha256


sha256 = _find()


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """HMAC with SHA-256 (RFC 2104)."""
    padded = (sha256(key).digest() if len(key) > BLOCK else key).ljust(BLOCK, b"\0")
    inner = sha256(padded.translate(_INNER) + message).digest()
    digest: bytes = sha256(padded.translate(_OUTER) + inner).digest()
    return digest
