"""Thousands of odd requests: none is answered with 5xx, a traceback, or something other than JSON."""

import asyncio
import random
from pathlib import Path

from tests.dashboard.world import HOST, SAME, Answer, Site, World, run, sqlite_url

REQUESTS = 2_000
ROUTES = (
    "/", "/jobs", "/fires", "/queues/", "/nodes", "/audit", "/static/", "/healthz", "/readyz", "/metrics",
    "/api/now", "/api/jobs", "/api/fires", "/api/queues", "/api/nodes", "/api/tally", "/api/audit", "/api/",
    "/api/jobs/shop.tick", "/api/jobs/shop.tick/next", "/api/fires/shop.tick@1/why", "/api/fires/k/output",
    "/api/queues/mail/dead", "/api/jobs/shop.tick/fire", "/api/jobs/shop.tick/pause", "/api/fires/k/kill",
    "/api/jobs/shop.tick/resume", "/api/fires/k/again", "/api/queues/mail/retry", "/api/queues/mail/forget",
)  # fmt: skip
PARAMETERS = (
    "app", "window", "since", "limit", "before", "after", "outcome", "queue", "node", "origin", "state",
    "from", "to", "job", "hours", "attempt", "download", "x",
)  # fmt: skip
VALUES = (
    "", "0", "1", "-1", "50", "99999999999999999999", "1e9", "²", "shop", "shop.tick", "succeeded",
    "claimed", "push", "null", "true", "%00", "%ff", "%2e%2e%2f", "..", "'", '"', "<script>", "{{root}}",
    "\u202e", "𝒳", "%0d%0aX:1", "2026-11-18T15:00:00Z", "2026-11-18T15:00:00%2B00:00%20k",
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-11-18 k", "600", "3600", "mail^high", "a/b",
    "shop.tick@2026-11-18T15:00:00Z", "x" * 1200, "%", "%%",
)  # fmt: skip
BODIES = (
    "", "{}", "[]", "null", "1", '"x"', "{", '{"reason": null}', '{"reason": "x"}', '{"keys": ["x"]}',
    '{"keys": [1]}', '{"keys": []}', '{"until": "2099-01-01T00:00:00Z"}', '{"until": "x"}',
    '{"until": 1e400}', '{"reason": "\\u0000"}', '{"keys": ["\\ud800"]}', '{"reason": "\\ud800"}',
    '{"keys": "x"}', '{"x": 1}', "[" * 9_000, '{"keys": ["\\u0000"]}',
)  # fmt: skip
HEADERS = (
    {}, {}, {}, SAME, SAME, SAME, {"accept-encoding": "gzip"}, {"host": "x"}, {"origin": "null"},
    {"last-event-id": "x"}, {"if-none-match": '"x"'}, {"authorization": "Basic /"}, {"sec-fetch-site": "x"},
    SAME | {"content-type": "text/plain"},
)  # fmt: skip


def odd_request(chance: random.Random) -> tuple[str, str, dict[str, str], bytes]:
    path = chance.choice(ROUTES)
    if chance.random() < 0.3:
        path += "/" + chance.choice(VALUES)
    if chance.random() < 0.2:
        path = path.replace("shop.tick", chance.choice(VALUES)).replace("mail", chance.choice(VALUES)) or "/"
    pairs = [
        f"{chance.choice(PARAMETERS)}={chance.choice(VALUES)}"
        for _ in range(chance.choice((0, 0, 1, 1, 2, 3)))
    ]
    target = path + ("?" + "&".join(pairs) if pairs else "")
    is_post = path.rpartition("/")[2] in ("fire", "pause", "resume", "kill", "again", "retry", "forget")
    method = chance.choice(
        ("POST", "POST", "GET") if is_post else ("GET", "GET", "GET", "HEAD", "PUT", "OPTIONS")
    )
    return (
        method,
        target,
        dict(chance.choice(HEADERS)),
        chance.choice(BODIES).encode("utf-8", "surrogatepass"),
    )


def test_no_odd_request_breaks_it(tmp_path: Path) -> None:
    world = World(sqlite_url(tmp_path))
    world.run()
    world.kill_letter()
    site, chance = world.site(), random.Random(7)
    found: dict[int, int] = {}

    async def ask(site: Site, request: tuple[str, str, dict[str, str], bytes]) -> None:
        method, target, headers, body = request
        answer: Answer = await site.ask(method, target, headers, body)
        assert answer.status < 500, (request, answer.body)
        assert b"Traceback" not in answer.body, request
        if answer.status >= 400 and method != "HEAD":
            assert [*answer.json] == ["error"] and answer.json["error"], request
        found[answer.status] = found.get(answer.status, 0) + 1

    async def storm() -> None:
        for _ in range(REQUESTS // 10):
            await asyncio.gather(*(ask(site, odd_request(chance)) for _ in range(10)))

    run(storm())
    assert sum(found.values()) == REQUESTS and {200, 400, 403, 404, 405, 415, 421} <= {*found}, found
    assert [event for event, _ in world.events if event == "internal-error"] == []
    assert HOST
