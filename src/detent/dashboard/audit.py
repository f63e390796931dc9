"""The audit record: who did what, when and why, as notes in the store.  The oldest are deleted."""

import json
import secrets
from typing import Any

from detent import clock
from detent.stores.base import Store
from detent.views.formatting import iso

AUDIT = "audit/"  # + time and token: one action of a user
RECORDS_MAX = 500  # of an app
KEEP_S = 90 * 86_400.0
FIELDS = ("user", "action", "subject", "reason", "result")


def write_audit(store: Store, app: str, record: dict[str, str]) -> None:
    name = f"{AUDIT}{int(clock.wall() * 1000):015d}-{secrets.token_hex(3)}"
    store.note(app, name, json.dumps(record, ensure_ascii=False), KEEP_S)
    for old in store.notes(app, AUDIT)[:-RECORDS_MAX]:
        store.note(app, old.name, "")


def read_audit(store: Store, app: str) -> list[dict[str, Any]]:
    """The records, the newest first."""
    found = []
    for note in reversed(store.notes(app, AUDIT)):
        try:
            record = json.loads(note.text)
        except ValueError:
            continue  # another program wrote it
        if isinstance(record, dict):
            fields = {name: str(record.get(name, "")) for name in FIELDS}
            found.append({"at": iso(note.written_at), **fields})
    return found
