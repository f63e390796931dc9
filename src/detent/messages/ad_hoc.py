"""Work that a message describes itself, without a task: a command, a function call or an HTTP request.

It is off by default.  A queue can allow commands, functions by name patterns, and requests to listed hosts.
A request goes to a private address only if its host is listed in full.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from detent.messages.envelope import MessageBody, Refusal
from detent.model import Call, Command, Request, Work
from detent.rules.rates import PRIORITIES, with_priority, without_priority
from detent.text import quote

COMMAND, CALL, REQUEST = "!command", "!call", "!request"  # not valid as names of tasks
SHELL = ("/bin/sh", "-c")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Allowed(NamedTuple):
    """What messages of a queue may do besides calling tasks."""

    command: bool = False
    calls: tuple[str, ...] = ()  # patterns such as reports.*:build_*
    hosts: tuple[str, ...] = ()  # names, addresses or *.example.com


def allowed_from(allowed: Mapping[str, Allowed]) -> dict[str, frozenset[str]]:
    """Return the queues from which each kind is allowed."""
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
    args, may = json.loads(body.args), allowed[without_priority(queue)]
    make = {COMMAND: _command, CALL: _call, REQUEST: _request}[body.task]
    try:
        return make(args, may)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        return Refusal("malformed", f"its arguments do not describe a {body.task[1:]}: {error}"[:200])


def _command(args: Mapping[str, Any], may: Allowed) -> Command:
    words = (*SHELL, _text(args["command"])) if "command" in args else tuple(map(_text, args["words"]))
    if not words or not words[0]:
        raise ValueError("the command is empty")
    return Command(words, work_dir=_text(args.get("work_dir", "")), env=_pairs(args.get("env", {})))


def _call(args: Mapping[str, Any], may: Allowed) -> Call | Refusal:
    from fnmatch import fnmatchcase

    function = _text(args["function"])
    if not any(fnmatchcase(function, pattern) for pattern in may.calls):
        return Refusal("not-allowed", f"function {quote(function[:80])} is not allowed from its queue")
    if not isinstance(args.get("args", []), list | dict):
        raise TypeError("args is not a list or an object")
    return Call(function, json.dumps(args.get("args", [])))


def _request(args: Mapping[str, Any], may: Allowed) -> Request:
    method = _text(args.get("method", "POST"))
    if method not in METHODS:
        raise ValueError(f"{quote(method[:20])} is not one of {', '.join(METHODS)}")
    url = _text(args["url"])
    if not url.startswith(("http://", "https://")):
        raise ValueError("the URL does not start with http:// or https://")
    headers = _pairs(args.get("headers", {}))
    if any(ord(character) < 32 for pair in headers for text in pair for character in text):
        raise ValueError("a header has a control character")
    return Request(url, method, headers, _text(args.get("body", "")), hosts=may.hosts)


def _pairs(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((_text(name), _text(value)) for name, value in given.items())


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is not a text")
    if "\0" in value:
        raise ValueError("a text contains NUL")
    return value
