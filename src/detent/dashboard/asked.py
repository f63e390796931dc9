"""Reads the parameters of a request.  Each has a shape and a limit; anything else is 400."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, get_args

from starlette.datastructures import QueryParams

from detent.app.queue.arguments import AS_JSON
from detent.dashboard.gate import Refusal
from detent.errors import UsageError
from detent.model import Kind, Origin, Place, Query, State
from detent.rules.rates import with_priorities
from detent.schedules.timetable import parse_instant
from detent.text import quote
from detent.views.formatting import printable
from detent.views.lookup import NOT_HOOKS
from detent.views.pauses import REASON_MAX

LIMIT_MAX = 500
KEYS_MAX = 500  # of one action
TEXT_MAX = 1_000  # characters of a name, a key or a cursor
YEARS = (1970, 9000)
FIRES = ("app", "job", "outcome", "queue", "node", "origin", "state", "from", "to", "limit", "before")


def check_names(given: Mapping[str, Any], allowed: Collection[str]) -> None:
    for name in given:
        if name not in allowed:
            raise Refusal(400, f"unknown parameter {quote(str(name)[:80])}: use {', '.join(allowed)}")


def number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = query.get(name, str(default))
    found = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    if not 1 <= found <= most:
        raise Refusal(400, f"bad {name} {quote(text[:80])}: use a whole number from 1 to {most}")
    return found


def word(query: Mapping[str, str], name: str, allowed: Collection[str]) -> str:
    text = query.get(name, "")
    if text and text not in allowed:
        raise Refusal(400, f"bad {name} {quote(text[:80])}: use one of {', '.join(allowed)}")
    return text


def text_of(query: Mapping[str, str], name: str) -> str:
    found = query.get(name, "")
    if len(found) > TEXT_MAX or "\0" in found:
        raise Refusal(400, f"bad {name}: it has more than {TEXT_MAX} characters, or a NUL")
    return found


def instant(text: str, name: str) -> datetime | None:
    try:
        found = parse_instant(text, name) if text else None
    except UsageError as error:
        raise Refusal(400, str(error)) from None
    if found and not YEARS[0] <= found.year <= YEARS[1]:
        raise Refusal(400, f"bad {name} {quote(text[:80])}: it is not between the years 1970 and 9000")
    return found


def place(text: str) -> Place | None:
    """A cursor: the due instant of the last fire of a page, and its key."""
    if not text:
        return None
    due, _, key = text.partition(" ")
    try:
        found = datetime.fromisoformat(due)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or not key or not YEARS[0] <= found.year <= YEARS[1]:
        raise Refusal(400, f"bad before {quote(text[:80])}: use the `before` of the page before")
    return found, key


def cursor(found: Place | None) -> str | None:
    return f"{found[0].isoformat()} {found[1]}" if found else None


def fires_query(query: QueryParams, app: str, now: datetime) -> Query:
    """Fires that are planned ahead are left out, unless `to` or `state=pending` asks for them."""
    check_names(query, FIRES)
    outcomes = [one for text in query.getlist("outcome") for one in text.split(",") if one]
    for outcome in outcomes:
        word({"outcome": outcome}, "outcome", get_args(Kind))
    origin, queue = word(query, "origin", get_args(Origin)), text_of(query, "queue")
    return Query(
        app=app,
        job=text_of(query, "job"),
        state=word(query, "state", get_args(State)),
        origins=(origin,) if origin else NOT_HOOKS,  # type: ignore[arg-type]
        queues=with_priorities([queue]) if queue else (),
        kinds=tuple(outcomes),  # type: ignore[arg-type]
        since=instant(query.get("from", ""), "from"),
        until=instant(query.get("to", ""), "to") or (None if query.get("state") == "pending" else now),
        limit=number(query, "limit", 50, LIMIT_MAX),
        before=place(text_of(query, "before")),
    )


# The bodies of actions.


def reason_of(body: Mapping[str, Any]) -> str:
    reason = body.get("reason", "")
    if not isinstance(reason, str) or len(reason) > REASON_MAX:
        raise Refusal(400, f"bad reason: use a text of at most {REASON_MAX} characters")
    return printable(reason)


def args_of(body: Mapping[str, Any]) -> str:
    """The arguments as JSON text; "" if none are given."""
    text = body.get("args") or ""
    if not isinstance(text, str):
        raise Refusal(400, f"bad args: use a text with {AS_JSON}")
    return text.strip()


def keys_of(body: Mapping[str, Any]) -> list[str]:
    keys = body.get("keys")
    if not isinstance(keys, list) or not 1 <= len(keys) <= KEYS_MAX:
        raise Refusal(400, f"bad keys: use a list of 1 to {KEYS_MAX} keys of fires")
    for key in keys:
        if not isinstance(key, str) or not key or len(key) > TEXT_MAX or "\0" in key:
            raise Refusal(400, "bad keys: each has to be the key of a fire")
    return [*dict.fromkeys(keys)]


def until_of(body: Mapping[str, Any]) -> datetime | None:
    until = body.get("until")
    if until is not None and not isinstance(until, str):
        raise Refusal(400, "bad until: use an instant such as 2026-11-15T02:00:00Z, or null")
    return instant(until or "", "until")
