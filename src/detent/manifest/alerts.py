"""Addresses and texts of alerts.  Pure; `runners.alert` sends them.

An address is a URL of Apprise, such as `slack://…` or `mailto://…`.  `{{name}}` in it is a reference to a
secret; `{{name}}` in a title or body is a value of the fire.
"""

import re
from typing import Any, NamedTuple

from detent.manifest.placeholders import OPEN, fill_in, names_in, split_text
from detent.manifest.webhooks import NAMES as HOOK_NAMES
from detent.manifest.webhooks import values_of
from detent.model import Alert, Fire

NAMES = (*HOOK_NAMES, "state", "since", "fires", "link")
OUTPUT_MAX = 1500  # characters of output in the default text: some chats accept only 2,000 in all
REFERENCE = r"[a-zA-Z][a-zA-Z0-9_:./-]{0,127}"
SERVICE = re.compile(r"(?!https?:)([a-z][a-z0-9]{0,30}):(//)?")
KNOWN = ("mailto", "slack", "pagerduty", "discord", "msteams", "telegram", "tgram", "ping")  # never commands
_SECRET_MIN, _LONG = 8, 16  # characters of a part of an address


class AlertText(NamedTuple):
    title: str
    body: str
    level: str  # failure | warning | success | info


def service_of(hook: str) -> str:
    """Return the service of an alert's address, or "" if this hook is a command or a URL."""
    if hook.startswith(OPEN):
        return "alert"  # the whole address is a secret
    match = SERVICE.match(hook)
    return match[1] if match and (match[2] or match[1] in KNOWN) else ""


def address_fault(address: str) -> tuple[str, str]:
    """Return what is wrong with an address, without showing it, and advice; two empty texts if it is valid
    as far as it can be checked without Apprise."""
    service, plain = service_of(address), split_text(address)[::2]
    if service == "ping":
        return "`ping:` is not a hook", "give the job the field `ping: https://…`"
    if service != "alert" and not address.startswith(f"{service}://"):
        return f"an address of {service} starts with {service}://", f"write {service}://…"
    if OPEN in "".join(plain) or not all(re.fullmatch(REFERENCE, ref) for ref in names_in(address)):
        return f"the {service} address has a bad reference", "write {{name}}, {{env:NAME}} or {{file:/path}}"
    if address.endswith("://") or re.search(r"\s", "".join(plain)):
        return f"the {service} address is empty or has spaces", "percent-encode spaces as %20"
    return "", ""


def make_alert(hook: str | dict[str, Any], dashboard_url: str = "") -> Alert:
    given = {"to": hook} if isinstance(hook, str) else hook
    refs = tuple(dict.fromkeys(names_in(given["to"])))
    return Alert(given["to"], given.get("title", ""), given.get("body", ""), dashboard_url, refs)


def address_secrets(address: str) -> list[str]:
    """Return an address and those of its parts that may be secrets, as they are and decoded."""
    from urllib.parse import unquote

    found = [address, *_secret_parts(address)]
    return [*dict.fromkeys([*found, *map(unquote, found)])]


def has_secret(address: str) -> bool:
    """Return whether an address contains a secret, and not only references to one."""
    return bool(_secret_parts("".join(split_text(address)[::2])))


def _secret_parts(address: str) -> list[str]:
    """Return its password, and what looks like a token."""
    whole = SERVICE.sub("", address, count=1)
    userinfo = re.match(r"[^:/?#]*:([^/?#]+)@", whole)
    parts = [part for part in re.split(r"[/:@?&=#,]+", whole) if "." not in part]
    tokens = [part for part in parts if len(part) >= _LONG or (len(part) >= _SECRET_MIN and _is_mixed(part))]
    return [userinfo[1], *tokens] if userinfo else tokens


def _is_mixed(part: str) -> bool:
    return bool(re.search("[0-9]", part) and re.search("[A-Za-z]", part))


def alert_text(alert: Alert, fire: Fire) -> AlertText:
    values = values_of(fire) | {"link": link_of(alert.dashboard_url, fire)}
    title, body = _filled(alert.title, values), _filled(alert.body, values)
    return AlertText(title or _title(values), body or _body(values), _level(values))


def link_of(dashboard_url: str, fire: Fire) -> str:
    from urllib.parse import quote

    key = values_of(fire)["fire"]
    return f"{dashboard_url.rstrip('/')}/fires/{quote(key, safe='/@:')}" if dashboard_url else ""


def _filled(text: str, values: dict[str, Any]) -> str:
    found = {name: str(value) for name, value in values.items() if value is not None}
    return fill_in(text, lambda name: found.get(name, ""))


def _level(values: dict[str, Any]) -> str:
    if values["outcome"] == "succeeded":
        return "success"
    return "failure" if values["hook"].startswith("on_failure") else "warning"


def _title(values: dict[str, Any]) -> str:
    event, state = values["hook"].partition(".")[0], values.get("state")
    headline = "late" if event == "on_late" else values["outcome"]
    if state == "recovered":
        headline = "recovered"
    elif state == "continues":
        headline = f"still {'skipped' if event == 'on_skip' else 'failing'}"
    return f"{values['app']}.{values['job']}: {headline}"


def _body(values: dict[str, Any]) -> str:
    late_s, reason = values.get("late_s"), values["reason"]
    outcome = [f"{values['outcome'] or 'late'}{reason and f': {reason}'}"]
    outcome += [f"{values['attempts']} attempts"] if values.get("attempts", 1) > 1 else []
    lines = [
        f"Fire: {values['fire']}",
        f"Due: {values['due']}{f', {late_s} s late' if late_s else ''}",
        f"Outcome: {', '.join(outcome)}",
    ]
    if values.get("state") in ("continues", "recovered"):
        verb = "Skipped" if values["hook"].startswith("on_skip") else "Failed"
        lines.append(f"{verb}: {values['fires']} times since {values['since']}")
    lines += [f"Link: {values['link']}"] if values["link"] else []
    output = values.get("output_tail", "").strip()[-OUTPUT_MAX:]
    return "\n".join([*lines, "Last output:", output] if output else lines)
