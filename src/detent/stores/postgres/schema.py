"""Creates and upgrades the schema of the PostgreSQL store.

The store has a schema of its own in the database.  The first process that finds it missing or old upgrades it
in one transaction, under an advisory lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from detent.errors import StoreMismatch, UsageError
from detent.stores.postgres.link import Link
from detent.stores.postgres.session import SYSTEM, TYPES
from detent.stores.sql.driver import LATER_S, SOON_S
from detent.stores.sql.schema import TABLES, WORLD, script
from detent.text import quote

VERSION = 1
OLDEST = 1  # the oldest schema version whose program can use this schema
SERVER_OLDEST = 130_000
FILES = (TABLES, WORLD, Path(__file__).with_name("tables.sql"))
_BEGIN_WORLD = f"""
INSERT INTO world SELECT 1, gen_random_uuid()::text, '', {SYSTEM}, 0, now, now, 0, 0, 0 FROM clock() AS now
"""
_MARK = """
INSERT INTO schema_version VALUES (1, %s, %s)
ON CONFLICT (one) DO UPDATE SET number = excluded.number, oldest = excluded.oldest
"""
_RELATIONS = "FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %s"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+) \((.*?)\n\)", re.DOTALL)
_REMARK = re.compile(r"^(?:    (\w+).*)? -- (.+)$", re.MULTILINE)


def schema_name(prefix: str) -> str:
    if not _NAME.fullmatch(prefix) or prefix.startswith("pg_"):
        raise UsageError(
            f"bad key_prefix {quote(prefix)}: in PostgreSQL it names the schema; use at most 63 of a–z, 0–9 "
            'and _, with no digit first; not "pg_…"'
        )
    return prefix


def prepare(link: Link, schema: str) -> None:
    """Create or upgrade the schema if needed.  Raises if this version cannot use it."""
    server = link.db.info.server_version
    if server < SERVER_OLDEST:
        raise StoreMismatch(
            f"the store is a PostgreSQL {server // 10_000}, and detent needs 13 or later: upgrade the server"
        )
    if _version(link, schema) >= VERSION:
        return
    link.limit(LATER_S)
    with link.db.transaction():
        lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
        link.value(lock, f"detent {schema}")
        have = _version(link, schema)
        if have < VERSION:
            _upgrade(link, schema, have)
    link.limit(SOON_S)


def _version(link: Link, schema: str) -> int:
    """The version of the schema; 0: it does not exist."""
    if not link.value(f"SELECT count(*) {_RELATIONS} AND relname = 'schema_version'", schema):
        return 0
    oldest = link.value(f'SELECT oldest FROM "{schema}".schema_version')
    version = link.value(f'SELECT number FROM "{schema}".schema_version')
    if oldest > VERSION:
        raise StoreMismatch(
            f'the schema "{schema}" of the store has version {version}, and this version of detent '
            f"supports at most {VERSION}: upgrade detent on this host, or name another schema with "
            "`key_prefix`"
        )
    return int(version)


def _upgrade(link: Link, schema: str, have: int) -> None:
    if not have and link.value(f"SELECT count(*) {_RELATIONS}", schema):
        raise StoreMismatch(
            f'the schema "{schema}" of the store belongs to another program: '
            "name another one with `key_prefix`"
        )
    if not link.value("SELECT count(*) FROM pg_namespace WHERE nspname = %s", schema):
        link.db.execute(f'CREATE SCHEMA "{schema}"'.encode())
    link.db.execute(f'SET LOCAL search_path TO "{schema}", pg_temp'.encode())
    tables = script(FILES, TYPES, have).replace(" WITHOUT ROWID", "")
    link.db.execute("\n".join((tables, *_remarks(tables))).encode())
    if not have:
        link.db.execute(_BEGIN_WORLD.encode())
    link.db.execute(_MARK.encode(), (VERSION, OLDEST))


def _remarks(tables: str) -> Iterator[str]:
    """Keeps the comments of tables and columns in the database."""
    for table, body in _TABLE.findall(tables):
        for column, remark in _REMARK.findall(body):
            thing = f"COLUMN {table}.{column}" if column else f"TABLE {table}"
            yield f"COMMENT ON {thing} IS '{remark}';"
