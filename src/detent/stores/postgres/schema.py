"""Creates and upgrades the schema of the PostgreSQL store.

The store has a schema of its own in the database.  The first process that finds it missing or old upgrades it
in one transaction, under an advisory lock.  `tables.sql` has one section for each version, with the changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from detent.errors import StoreMismatch, UsageError
from detent.stores.postgres.link import LATER_S, SOON_S, Link, Refusal
from detent.text import quote

VERSION = 1
OLDEST = 1  # the oldest schema version whose program can use this schema
SERVER_OLDEST = 130_000
_LACKING = ("3F000", "42P01")  # no such schema, no such table
_BEGIN_WORLD = """
INSERT INTO world SELECT 1, gen_random_uuid()::text, '', {}, 0, now, now, 0, 0, 0 FROM clock() AS now
"""
# The cluster and its timeline: a promotion or a restored backup begins another.
SYSTEM = "{}cluster() || left(pg_walfile_name(pg_current_wal_lsn()), 8)"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)


def schema_name(prefix: str) -> str:
    if not _NAME.fullmatch(prefix) or prefix.startswith("pg_"):
        raise UsageError(
            f"bad key_prefix {quote(prefix)}: in PostgreSQL it names the schema; use at most 63 of a–z, 0–9 "
            'and _, with no digit first; not "pg_…"'
        )
    return prefix


def prepare(link: Link, schema: str) -> None:
    """Create or upgrade the schema if needed.  Raises if this version cannot use it."""
    _refuse_old_server(link)
    if _version(link, schema) < VERSION:
        _migrate(link, schema)


def _version(link: Link, schema: str) -> int:
    """The version of the schema; 0: it does not exist."""
    try:
        found = link.call(f'SELECT json_build_array(number, oldest) FROM "{schema}".schema_version', SOON_S)
    except Refusal as refusal:
        if refusal.code not in _LACKING:
            raise
        return 0
    version, oldest = json.loads(found)
    if oldest > VERSION:
        raise StoreMismatch(
            f'the schema "{schema}" of the store has version {version}, and this version of detent '
            f"supports at most {VERSION}: upgrade detent on this host, or name another schema with "
            "`key_prefix`"
        )
    return int(version)


def _migrate(link: Link, schema: str) -> None:
    begin = f"BEGIN; SET LOCAL statement_timeout TO {round(LATER_S * 1000)}"
    lock = f"SELECT pg_advisory_xact_lock(hashtextextended({link.literal('detent ' + schema)}, 0))"
    link.run(f"{begin}; {lock}", LATER_S)
    try:
        have = _have(link, schema)
        if have < VERSION:
            link.run(_script(link, schema, have), LATER_S)
        link.run("COMMIT", LATER_S)
    except BaseException:
        if link.is_open:
            link.run("ROLLBACK", SOON_S)
        raise


def _have(link: Link, schema: str) -> int:
    """The version, read under the lock.  Raises if the schema belongs to another program."""
    name = link.literal(schema)
    relations = f"FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = {name}"
    if link.run(f"SELECT count(*) {relations} AND relname = 'schema_version'", SOON_S) != "0":
        return int(link.run(f'SELECT number FROM "{schema}".schema_version', SOON_S))
    if link.run(f"SELECT count(*) {relations}", SOON_S) != "0":
        raise StoreMismatch(
            f'the schema "{schema}" of the store belongs to another program: '
            "name another one with `key_prefix`"
        )
    return 0


def _script(link: Link, schema: str, have: int) -> str:
    """The statements that create the schema, or upgrade it from that version."""
    exists = link.run(f"SELECT count(*) FROM pg_namespace WHERE nspname = {link.literal(schema)}", SOON_S)
    begin = f'CREATE SCHEMA "{schema}";' if exists == "0" else ""
    begin += f' SET LOCAL search_path TO "{schema}", pg_temp;'
    steps = [step for version, step in sections() if version > have]
    if not have:
        steps.append(_BEGIN_WORLD.format(SYSTEM.format("")) + ";")
    mark = f"INSERT INTO schema_version VALUES (1, {VERSION}, {OLDEST})"
    change = f"UPDATE SET number = {VERSION}, oldest = {OLDEST}"
    return " ".join((begin, *steps, f"{mark} ON CONFLICT (one) DO {change}"))


def sections() -> Iterator[tuple[int, str]]:
    """Each version, with the changes to the tables of the version before."""
    script = (Path(__file__).parent / "sql" / "tables.sql").read_text(encoding="utf-8")
    for section in script.split("-- version ")[1:]:
        version, _, rest = section.partition("\n")
        yield int(version), rest


def _refuse_old_server(link: Link) -> None:
    version = link.db.info.server_version
    if version < SERVER_OLDEST:
        raise StoreMismatch(
            f"the store is a PostgreSQL {version // 10_000}, and detent needs 13 or later: upgrade the server"
        )
