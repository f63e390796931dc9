"""Reads the URL of a MySQL store."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from detent.errors import UsageError
from detent.stores.sql.pool import SIZE, read_size
from detent.text import quote

PARAMETERS = ("pool_size", "ssl_ca", "unix_socket")
_USE = 'use "mysql://USER:PASSWORD@HOST:PORT/DATABASE"'
_BAD = 'bad store "mysql:": '
_ESCAPE = "in a name or a password, write a special character as %XX"


class Address(NamedTuple):
    name: str  # for messages: without user and password
    arguments: dict[str, Any]  # of `pymysql.connect`
    pool_size: int


def read_url(url: str) -> Address:
    try:
        import pymysql  # noqa: F401
    except ImportError:
        raise UsageError(
            'the store "mysql:" needs a driver that is not installed: pip install "detent[mysql]"'
        ) from None
    try:
        parts = urlsplit(url)
        port, database = parts.port or 3306, unquote(parts.path[1:])
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        if parts.netloc.count("@") > 1 or parts.fragment or "@" in parts.path:  # a part of the password
            raise ValueError
    except ValueError:
        raise UsageError(f"{_BAD}it is no URL of a MySQL database; {_USE}; {_ESCAPE}") from None
    if not database or "/" in database:
        raise UsageError(f"{_BAD}it names no database; {_USE}")
    if unknown := sorted(set(given) - set(PARAMETERS)):
        raise UsageError(f"{_BAD}unknown parameter {quote(unknown[0])}; allowed are {', '.join(PARAMETERS)}")
    host, size = parts.hostname or "localhost", read_size(given.pop("pool_size", str(SIZE)), "mysql")
    login = {"user": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    arguments = {"host": host, "port": port, "database": database, **login, **given}
    return Address(quote(f"mysql://{host}:{port}/{database}"), arguments, size)
