"""Replaces secrets in logs, reasons, output and results by `***`.

1. By value: a known secret is found in plain text and as URLs, JSON, Python and base 64 encode it, even in
   a longer base 64 text (`user:password` in a header).  Values shorter than four characters are not searched
   for, because they would match everywhere.
2. By name: the value of a name such as `password`, `apiKey` or `X-Auth-Token`, in nested values and in text:
   `password=…`, `"token": "…"`, `--secret …`, `Authorization: …`, `://user:…@host`.
3. Empty values (`null`, `false`, `""`) and detent's own fields stay: the key of a fire is not a secret.
4. In the output and results of work only values are replaced, in results only long ones.  A password that is
   a common word would match in any text, and a result must stay unchanged.
5. The time is linear in the length of the text, whatever it contains.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from detent.manifest.secret_refs import Secret

MASKED = "***"
VALUE_MIN = 4  # shortest secret that is searched for
RESULT_MIN = 12  # the same, in results
BASE64_MIN = 5  # shortest part of an encoded secret that is searched for
NESTING_MAX = 32  # values nested deeper are masked as a whole
OWN = frozenset({"time", "level", "event", "app", "job", "run_id", "fire", "node", "key", "fence", "due"})

_ANYWHERE = frozenset(
    {"password", "passwd", "passphrase", "pwd", "credential", "credentials", "authorization"}
)
_LAST = frozenset({"secret", "secrets", "token", "tokens", "cookie", "cookies", "apikey", "signature", "jwt"})
_KEYS = frozenset(
    {"api", "private", "access", "secret", "signing", "encryption", "auth", "account", "shared"}
)
_RUN_TOGETHER = ("password", "passwd", "secret", "token", "apikey", "privatekey", "accesskey", "cookie")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_HINT = "passw|passphrase|pwd|secret|token|key|credential|authorization|cookie|signature|jwt"
_NAME = rf"(?<![\w.-])(?P<name>(?=[\w.-]{{0,64}}?(?:{_HINT}))[\w.-]{{1,128}}+)"
_VALUE = r"""
    [bu]?"(?:[^"\\]|\\.)*+"?                          # quoted, or cut off inside quotes
  | [bu]?'(?:[^'\\]|\\.)*+'?
  | \\{1,8}"(?:(?!\\{1,8}").)*+(?:\\{1,8}")?          # the same inside a quoted text
  | \[[^\]]*+\]? | \{[^}]*+\}?
  | (?:bearer|basic|digest|token|apikey)[ \t]+[^\s,;&"'<>)\]}]++
  | [^\s,;&"'<>()\[\]{}\\]++
"""
_PAIR = re.compile(
    rf"""{_NAME}(?P<between>\\{{0,8}}["']?\s{{0,3}}(?:=>|[:=])\s{{0,3}})(?P<value>{_VALUE})""",
    re.I | re.X | re.S,
)
_OPTION = re.compile(rf"(?=--){_NAME}(?P<between>\s{{1,3}})(?P<value>(?!-)(?:{_VALUE}))", re.I | re.X | re.S)
_HEADER = re.compile(
    r"""(?<![\w-])((?:proxy-)?authorization|(?:set-)?cookie)(:[ \t]*)(?!["'])[^\r\n"']+""", re.I
)
_SCHEME = re.compile(r"\b(bearer|basic)([ \t]+)(?=[\w.~+/=-]{0,200}?[0-9=])[\w.~+/=-]{8,}+", re.I)
_USERINFO = re.compile(r"""(?<=://)(?:([^/?#\s:@"']{0,256}:)[^/?#\s"']*(?=@)|[^/?#\s:@"']{20,256}(?=@))""")
_PEM = re.compile(
    r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.S
)


class Mask:
    def __init__(self, secrets: Iterable[Secret | str] = ()) -> None:
        self._forms: tuple[str, ...] = ()
        self._values: re.Pattern[str] | None = None
        self._in_results: re.Pattern[str] | None = None
        self._long: set[str] = set()
        self.learn(secrets)

    def learn(self, secrets: Iterable[Secret | str]) -> None:
        """Mask these secrets too."""
        texts = [one.key().decode() if isinstance(one, Secret) else one for one in secrets]
        forms = {form for text in texts if len(text) >= VALUE_MIN for form in _forms(text)}
        self._long |= {form for text in texts if len(text) >= RESULT_MIN for form in _forms(text)}
        self._forms = tuple(_longest_first(forms | set(self._forms)))
        self._values, self._in_results = _any_of(self._forms), _any_of(_longest_first(self._long))

    def knows(self, text: str) -> bool:
        """Does the text contain the value of a secret?"""
        return any(form in text for form in self._forms)

    def text(self, text: str) -> str:
        text = _PEM.sub(rf"\1{MASKED}\2", self._without_values(text))
        text = _USERINFO.sub(lambda found: f"{found[1] or ''}{MASKED}", text)
        text = _HEADER.sub(rf"\1\2{MASKED}", text)
        text = _PAIR.sub(self._pair, text)
        text = _OPTION.sub(self._pair, text)
        return _SCHEME.sub(rf"\1\2{MASKED}", text)

    def output(self, output: bytes) -> bytes:
        """Mask the values of secrets in the output of work."""
        text = output.decode("utf-8", "surrogateescape")
        return self._without_values(text).encode("utf-8", "surrogateescape") if self.knows(text) else output

    def result(self, text: str) -> str:
        """Mask the values of secrets in a JSON result."""
        masked = self._in_results.sub(MASKED, text) if self._in_results else text
        if masked != text:
            try:
                json.loads(masked)
            except ValueError:  # the secret was a number
                return json.dumps(MASKED)
        return masked

    def fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value if name in OWN else self._under(name, value, 0) for name, value in fields.items()}

    def _pair(self, found: re.Match[str]) -> str:
        value = found["value"]
        if not _hides(found["name"], value) or value in _EMPTY:
            return found[0]
        quote = next((mark for mark in ('\\"', '"', "'") if value.startswith(mark)), "")
        return f"{found[0][: found.start('value') - found.start()]}{quote}{MASKED}{quote}"

    def _under(self, name: str, value: Any, depth: int) -> Any:
        if value is None or value == "" or isinstance(value, bool):
            return value
        return MASKED if _hides(name, value) else self._inside(value, depth)

    def _inside(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, int | float):
            return value
        if depth >= NESTING_MAX:
            return MASKED
        if isinstance(value, Mapping):
            pairs = [(str(name), one) for name, one in value.items()]
            return {self._without_values(name): self._under(name, one, depth + 1) for name, one in pairs}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._inside(one, depth + 1) for one in value]
        return self.text(str(value))

    def _without_values(self, text: str) -> str:
        return self._values.sub(MASKED, text) if self._values else text


def _hides(name: str, value: Any) -> bool:
    is_number = isinstance(value, int | float) or (isinstance(value, str) and value.isdigit())
    is_count = is_number and name[-1:] in "sS"  # such as a number of tokens
    return not is_count and is_secret_name(name)


def _longest_first(forms: Iterable[str]) -> list[str]:
    return sorted(forms, key=lambda form: (-len(form), form))


def _any_of(forms: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(re.escape, forms))) if forms else None


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Does this name usually hold a secret, in any spelling?"""
    words = [word.lower() for word in _WORD.findall(name[:256])]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    return (
        not _ANYWHERE.isdisjoint(words)
        or last in _LAST
        or (last in ("key", "keys") and before in _KEYS)
        or last.endswith(_RUN_TOGETHER)
    )


def _forms(secret: str) -> set[str]:
    """Return the encodings of a secret."""
    from urllib.parse import quote, quote_plus

    encoded = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    encoded |= {re.sub("%..", lambda found: found[0].lower(), one) for one in encoded}
    written = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    return {secret, *encoded, *written, *_in_base64(secret.encode())}


def _in_base64(content: bytes) -> set[str]:
    """Return the base 64 characters that do not depend on the position: three bytes make four characters."""
    found = set()
    for before in range(3):
        text = b64encode(bytes(before) + content).decode()
        stable = text[-(-before * 8 // 6) : (before + len(content)) * 8 // 6]
        if len(stable) >= BASE64_MIN:
            found |= {stable, stable.replace("+", "-").replace("/", "_")}
    return found


_EMPTY = ("null", "None", "true", "false", "True", "False", '""', "''", "[]", "{}", MASKED)
