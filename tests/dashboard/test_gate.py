"""The gate: every route × role × method, without credentials, from another site, under another name."""

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.dashboard.world import HOST, SAME, Answer, Site, World, run, sqlite_url

from detent.dashboard.auth import local_user, parse_auth, read_only
from detent.dashboard.gate import BODY_MAX
from detent.dashboard.observer import Observer
from detent.dashboard.server import Address, Options, allowed_hosts, build, parse_listen
from detent.dashboard.site import routes, site
from detent.errors import UsageError

WRITE, READ = "write-token-0123456789", "read-token-0123456789"
ENV = {"WRITE": WRITE, "READ": READ}
OPEN = ("/healthz", "/readyz")  # the only routes without a user
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
POSTS = {"fire", "pause", "resume", "kill", "again", "retry", "forget"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    found = World(sqlite_url(tmp_path_factory.mktemp("gate")))
    found.run()
    return found


@pytest.fixture(scope="module")
def guarded(world: World) -> Site:
    who = parse_auth(["token:env:WRITE", "read-token:env:READ"], [], {}, ENV)
    return Site(site(world.source, who, [HOST]))


def targets(world: World) -> Iterator[str]:
    """A target for each route of the table."""
    for route in routes(Observer(world.source)):
        names = {
            "name": "mail" if "queues" in route.path else "shop.tick",
            "key": "shop.tick@1",
            "queue": "mail",
        }
        path = route.path
        for name, value in names.items():
            path = path.replace("{" + name + ":path}", "app.js" if "static" in path else value)
        yield path


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def walk(site: Site, world: World, headers: Mapping[str, str]) -> Iterator[tuple[str, str, Answer]]:
    for target in targets(world):
        for method in METHODS:
            yield method, target, run(site.ask(method, target, headers, b"{}"))


def test_the_table_has_every_route_of_the_specification(world: World) -> None:
    found = {route.path for route in routes(Observer(world.source))}
    assert {path.rpartition("/")[2] for path in found if "{" in path and path.startswith("/api")} >= POSTS
    assert found >= {"/healthz", "/readyz", "/api/now", "/api/events", "/static/{name:path}", "/"}


def test_without_credentials_nothing_is_shown(world: World, guarded: Site) -> None:
    for headers in (
        {},
        bearer("wrong"),
        bearer(""),
        {"authorization": "Basic !!"},
        {"authorization": "Basic"},
    ):
        for method, target, answer in walk(guarded, world, SAME | headers):
            if target not in OPEN:
                assert answer.status == 401, (method, target)
                assert "www-authenticate" in answer.headers and (
                    method == "HEAD" or [*answer.json] == ["error"]
                )


def test_the_read_role_may_read_everything_and_change_nothing(world: World, guarded: Site) -> None:
    for method, target, answer in walk(guarded, world, SAME | bearer(READ)):
        if method == "POST":
            assert answer.status == (405 if target in OPEN else 403), target
        elif target.rpartition("/")[2] in POSTS or method not in ("GET", "HEAD"):
            assert answer.status in (404, 405, 200), (method, target)
        else:
            assert answer.status in (200, 404), (method, target)


def test_another_host_is_misdirected(world: World, guarded: Site) -> None:
    for headers in (
        {"host": "evil.test"},
        {"host": f"{HOST}:81"},
        {"host": ""},
        {"host": f"{HOST}.evil.test"},
    ):
        for method, target, answer in walk(guarded, world, SAME | bearer(WRITE) | headers):
            if target not in OPEN:
                assert answer.status == 421, (method, target)


def test_another_site_may_only_link_to_pages(world: World, guarded: Site) -> None:
    for origin in ("cross-site", "same-site"):
        foreign = {"sec-fetch-site": origin, "sec-fetch-mode": "cors", "origin": "http://evil.test"}
        json_type = {"content-type": "application/json"}
        for method, target, answer in walk(guarded, world, foreign | json_type | bearer(WRITE)):
            if target not in OPEN:
                assert answer.status == 403, (method, target)
        link = {"sec-fetch-site": origin, "sec-fetch-mode": "navigate"} | bearer(WRITE)
        assert run(guarded.ask("GET", "/jobs/shop.tick", link)).status == 200
        assert run(guarded.ask("GET", "/api/now", link)).status == 403


def test_every_answer_has_the_security_headers_and_none_of_the_others(world: World, guarded: Site) -> None:
    for headers in ({}, bearer(READ), bearer(WRITE) | {"host": "evil.test"}):
        for _, target, answer in walk(guarded, world, SAME | headers):
            found = answer.headers
            assert "script-src 'self'" in found["content-security-policy"], target
            assert "require-trusted-types-for 'script'" in found["content-security-policy"]
            assert "unsafe" not in found["content-security-policy"]
            assert found["x-content-type-options"] == "nosniff" and found["referrer-policy"] == "no-referrer"
            assert (
                found["cross-origin-opener-policy"] == found["cross-origin-resource-policy"] == "same-origin"
            )
            assert found["cache-control"] in ("no-store", "no-cache")
            assert not any(name.startswith("access-control") or name == "set-cookie" for name in found)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "none"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://evil.test"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": f"http://{HOST}:81"}, 403),
        ({"origin": "http://[x"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "application/json; charset=utf-8"}, 200),
    ],
)
def test_a_post_needs_the_same_origin_and_json(world: World, change: dict[str, str], status: int) -> None:
    body = b'{"reason": "x"}'
    answer = run(world.site().ask("POST", "/api/jobs/shop.tick/resume", SAME | change, body))
    assert answer.status == status, answer.body


def test_a_post_without_an_origin_needs_a_bearer_token(guarded: Site) -> None:
    kind = {"content-type": "application/json"}
    basic = {"authorization": "Basic " + base64.b64encode(f"ana:{WRITE}".encode()).decode()}
    resume = "/api/jobs/shop.tick/resume"
    assert run(guarded.ask("POST", resume, kind | bearer(WRITE), b"{}")).status == 200
    assert run(guarded.ask("POST", resume, kind | basic, b"{}")).status == 403
    assert run(guarded.ask("POST", resume, SAME | basic, b"{}")).status == 200
    assert (
        run(guarded.ask("POST", resume, {"sec-fetch-site": "same-origin"} | kind | basic, b"{}")).status
        == 403
    )


@pytest.mark.parametrize(
    "body", [b"[]", b"x", b"\xff", b'"x"', b"[" * 50_000, b" " * (BODY_MAX + 1), b'{"x": 1}']
)
def test_a_bad_body_is_refused(world: World, body: bytes) -> None:
    answer = run(world.site().ask("POST", "/api/jobs/shop.tick/pause", SAME, body))
    assert answer.status == 400 and answer.json["error"]


def test_a_password_is_a_token_with_a_name(guarded: Site) -> None:
    basic = base64.b64encode(f"ana (x) y:{READ}".encode()).decode()
    page = run(guarded.ask("GET", "/", {"authorization": f"Basic {basic}"})).body.decode()
    assert 'data-user="ana_x_y"' in page and 'data-role="read"' in page


def test_a_proxy_header_is_believed_from_a_trusted_proxy_only(world: World) -> None:
    who = parse_auth(["proxy:X-User"], ["10.1.0.0/16"], {}, {})
    inside = site(world.source, who, [HOST])
    user = {"x-user": "ana"}
    assert run(Site(inside, client="10.1.2.3").ask("GET", "/", user)).status == 200
    for address, headers in (
        ("10.2.0.1", user),
        ("127.0.0.1", user),
        ("", user),
        ("10.1.2.3", {}),
        ("10.1.2.3", {"x-user": " "}),
    ):
        assert run(Site(inside, client=address).ask("GET", "/", headers)).status == 401


def test_without_auth_only_this_machine_gets_in(world: World) -> None:
    inside = site(world.source, local_user("ana"), [HOST])
    assert run(Site(inside, client="127.0.0.1").ask("GET", "/")).status == 200
    assert run(Site(inside, client="::1").ask("GET", "/")).status == 200
    assert run(Site(inside, client="192.168.0.9").ask("GET", "/")).status == 401


def test_read_only_takes_the_role_from_everybody(world: World) -> None:
    inside = Site(site(world.source, read_only(local_user("ana")), [HOST]))
    assert inside.get("/api/now").status == 200 and inside.post("/api/jobs/shop.tick/pause").status == 403


@pytest.mark.parametrize(
    ("texts", "proxies", "wrong"),
    [
        (["token:env:NONE"], [], "NONE is not set"),
        (["token:env:SHORT"], [], "fewer than 8 bytes"),
        (["token:"], [], "use token:env:NAME"),
        (["password:x"], [], "use token:env:NAME"),
        (["proxy:X-User"], [], "--trusted-proxy"),
        (["proxy:X-User"], ["10.0.0.1/8"], "--trusted-proxy"),
        (["proxy:X-User"], ["everybody"], "--trusted-proxy"),
    ],
)
def test_bad_options_are_refused_without_the_secret(texts: list[str], proxies: list[str], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong) as caught:
        parse_auth(texts, proxies, {}, {"SHORT": "abc4567"})
    assert "abc4567" not in str(caught.value)


def test_another_address_than_loopback_needs_auth(world: World) -> None:
    for address in (Address("0.0.0.0", 8732), Address("10.0.0.1", 8732), Address("::", 8732)):
        with pytest.raises(UsageError, match="--auth"):
            build(world.source, Options(), address, {})
        build(world.source, Options(auth=("token:env:WRITE",)), address, ENV)


def test_listen_addresses_and_hosts() -> None:
    assert parse_listen("127.0.0.1:8732") == parse_listen(":8732") == parse_listen("127.0.0.1")
    assert parse_listen("[::1]:80") == Address("::1", 80) and str(Address("::1", 80)) == "[::1]:80"
    for text in ("x:y", "1:99999", "1:-1", ""):
        if text:
            with pytest.raises(UsageError):
                parse_listen(text)
    assert allowed_hosts(Address("127.0.0.1", 9), ["Ops.Example.org"]) == {
        "127.0.0.1:9", "localhost:9", "[::1]:9", "ops.example.org",
    }  # fmt: skip


def test_who_may_be_a_coroutine_function(world: World) -> None:
    async def who(request: object) -> None:
        await asyncio.sleep(0)

    assert Site(site(world.source, who, [HOST])).get("/").status == 401


def test_a_bug_is_one_sentence_and_an_event(world: World) -> None:
    def broken(request: object) -> None:
        raise RuntimeError("secret detail")

    answer = Site(site(world.source, broken, [HOST])).get("/api/now")
    assert answer.status == 500 and b"secret detail" not in answer.body and b"Traceback" not in answer.body
    assert world.events[-1][0] == "internal-error"
    json.loads(answer.body)


def test_websockets_are_closed(world: World, tmp_path: Path) -> None:
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    inside = site(world.source, lambda request: None, [HOST])
    asyncio.run(inside({"type": "websocket", "path": "/api/events", "headers": []}, receive, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]
