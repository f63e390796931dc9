"""Work that a message describes by itself: a command, a call of any function, a request.

It is off.  A queue may allow some of it: commands; functions, by patterns of their names; requests, to named
hosts.  A request goes to no private address unless its host is named in full.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from detent.messages.envelope import MessageBody, Refusal
from detent.model import Call, Command, Request, Work
from detent.rules.rates import PRIORITIES, with_priority, without_priority
from detent.text import quote

COMMAND, CALL, REQUEST = "!command", "!call", "!request"  # no task can have such a name
SHELL = ("/bin/sh", "-c")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Allowed(NamedTuple):
    """What messages of a queue may ask for, besides the app's tasks."""

    command: bool = False
    calls: tuple[str, ...] = ()  # patterns, like reports.*:build_*
    hosts: tuple[str, ...] = ()  # names and addresses, or *.example.com


def allowed_from(allowed: Mapping[str, Allowed]) -> dict[str, frozenset[str]]:
    """The queues from which each kind may come; of one that nobody allows: none."""
    kinds = {COMMAND: "command", CALL: "calls", REQUEST: "hosts"}
    return {
        kind: frozenset(
            with_priority(queue, level)
            for queue, one in allowed.items()
            if getattr(one, field)
            for level in PRIORITIES
        )
        for kind, field in kinds.items()
    }


def ad_hoc_work(queue: str, body: MessageBody, allowed: Mapping[str, Allowed]) -> Work | Refusal:
    """What such a letter describes; whether its kind may come from this queue is known by now."""
    args, may = json.loads(body.args), allowed[without_priority(queue)]
    make = {COMMAND: _command, CALL: _call, REQUEST: _request}[body.task]
    try:
        return make(args, may)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        return Refusal("malformed", f"its arguments describe no {body.task[1:]}: {error}"[:200])


def _command(args: Mapping[str, Any], may: Allowed) -> Command:
    words = (*SHELL, _text(args["command"])) if "command" in args else tuple(map(_text, args["words"]))
    if not words or not words[0]:
        raise ValueError("it has no words")
    return Command(words, work_dir=_text(args.get("work_dir", "")), env=_pairs(args.get("env", {})))


def _call(args: Mapping[str, Any], may: Allowed) -> Call | Refusal:
    from fnmatch import fnmatchcase

    function = _text(args["function"])
    if not any(fnmatchcase(function, pattern) for pattern in may.calls):
        return Refusal("not-allowed", f"function {quote(function[:80])} is not one that its queue allows")
    if not isinstance(args.get("args", []), list | dict):
        raise TypeError("args is neither a list nor an object")
    return Call(function, json.dumps(args.get("args", [])))


def _request(args: Mapping[str, Any], may: Allowed) -> Request:
    method = _text(args.get("method", "POST"))
    if method not in METHODS:
        raise ValueError(f"{quote(method[:20])} is no method")
    url = _text(args["url"])
    if not url.startswith(("http://", "https://")):
        raise ValueError("its URL starts with neither http:// nor https://")
    headers = _pairs(args.get("headers", {}))
    if any(ord(character) < 32 for pair in headers for text in pair for character in text):
        raise ValueError("a header has a control character")
    return Request(url, method, headers, _text(args.get("body", "")), hosts=may.hosts)


def _pairs(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((_text(name), _text(value)) for name, value in given.items())


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is no text")
    if "\0" in value:
        raise ValueError("a NUL in a text")
    return value
