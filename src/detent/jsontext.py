"""JSON as text, written and read by the C code of the standard library alone.

The module around that code costs a process that ends after one fire more than all that it reads and writes.
What comes of it is what `json` makes of the same; whatever is not plain is left to that.
"""

from __future__ import annotations

from detent.values import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SPACED = (", ", ": ")
BLANK = " \t\n\r"


class _Reading:
    """How `json` reads, in the words of its C code."""

    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int = float, int
    parse_constant = float  # NaN, Infinity, -Infinity


try:
    from _json import encode_basestring as encode_basestring
    from _json import encode_basestring_ascii, make_encoder, make_scanner
except ImportError:  # an interpreter that has it otherwise
    from json import dumps as dumps
    from json import loads as loads
    from json.encoder import encode_basestring as encode_basestring
else:
    _scan = make_scanner(_Reading)  # type: ignore[arg-type]

    def loads(text: str | bytes) -> Any:  # type: ignore[misc]
        try:
            plain = text if isinstance(text, str) else text.decode()
            value, end = _scan(plain, len(plain) - len(plain.lstrip(BLANK)))
            if not plain[end:].strip(BLANK):
                return value
        except (StopIteration, ValueError, SystemError):
            pass  # the last one is how the C code complains where `json` is not there to word it
        from json import loads

        return loads(text)

    def dumps(  # type: ignore[misc]
        value: object,
        *,
        ensure_ascii: bool = True,
        separators: tuple[str, str] = SPACED,
        default: Callable[[Any], Any] | None = None,
        allow_nan: bool = True,
    ) -> str:
        text = encode_basestring_ascii if ensure_ascii else encode_basestring
        if isinstance(value, str):
            return text(value)
        item, key = separators
        encode = make_encoder({}, default or _refuse, text, None, key, item, False, False, allow_nan)
        return "".join(encode(value, 0))

    def _refuse(value: object) -> Any:
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
