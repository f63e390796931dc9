"""A real browser, and a real shop to look at: a Redis server, a node, a dashboard."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from tests.equipment.fleet import PATIENCE_S, SOURCES, wait_for
from tests.equipment.redis_server import RedisServer, free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

BROWSERS = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
MOUNT = """
import shop, sys, uvicorn
from detent.dashboard import User, asgi
from starlette.applications import Starlette
from starlette.routing import Mount

dashboard = asgi(shop.app, who=lambda request: User(name="ana", role="read"))
uvicorn.run(Starlette(routes=[Mount(sys.argv[1], dashboard)]), port=int(sys.argv[2]))
"""
SHOP = Path(__file__).with_name("shop.py")


@pytest.fixture(scope="session")
def browser_path() -> str:
    pytest.importorskip("playwright", reason="needs playwright: pip install playwright")
    for path in BROWSERS:
        if Path(path).exists():
            return path
    pytest.skip("needs a browser: apt install chromium-headless-shell")


@pytest.fixture(scope="module")
def browser(browser_path: str) -> Iterator[Browser]:
    """One browser for each file: while it is open, playwright's event loop counts as running in this thread,
    and no other test could call asyncio.run()."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        yield browser
        browser.close()


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/healthz") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Shop:
    """The processes of one app; `shop.py` has its jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.redis = RedisServer(folder / "redis")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
        self.env |= {"PYTHONPATH": f"{SOURCES}:{SHOP.parent}", "DETENT_CONFIG": ""}
        self.env["SHOP_STORE"] = self.redis.url
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("node", "-m", "detent", "run", "-f", "shop:app", "--queues", "default,mail")
        address = f"127.0.0.1:{free_port()}"
        self._start("dashboard", "-m", "detent", "dashboard", "shop:app", "--listen", address)
        self.url = f"http://{address}"
        wait_for(lambda: _answers(self.url), what="a dashboard that answers")

    def _start(self, name: str, *words: str) -> None:
        command = [sys.executable, *words]
        with (self.folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=log, stderr=log)
        self._processes.append(started)

    def mount(self, prefix: str) -> str:
        """Serve the dashboard as a part of a web app, for readers; return its address."""
        port = free_port()
        self._start("mount", "-c", MOUNT, prefix, str(port))
        address = f"http://127.0.0.1:{port}{prefix}"
        wait_for(lambda: _answers(address), what="a mounted dashboard that answers")
        return address

    def run(self, *words: str) -> int:
        """Run one verb of the command line; return its exit code."""
        command = [sys.executable, "-m", "detent", *words, "-f", "shop:app"]
        return subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True).returncode

    def push(self, code: str) -> None:
        """Push messages: push("shop.send.push('a@example.org')")."""
        command = [sys.executable, "-c", f"import shop; {code}"]
        subprocess.run(command, env=self.env, check=True, cwd=self.folder)

    def end(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(PATIENCE_S)
        self.redis.end()


@pytest.fixture(scope="session")
def shop(browser_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    pytest.importorskip("starlette", reason="needs the extra web")
    shop = Shop(tmp_path_factory.mktemp("shop"))
    yield shop
    shop.end()


Open = Callable[..., "Page"]


@pytest.fixture
def visit(browser: Browser, shop: Shop) -> Iterator[Open]:
    """Open a page of the dashboard: visit("/jobs", color_scheme="dark").  `before` gets the empty page.

    The test fails if the console reports an error (a violation of the CSP or of Trusted Types is one), a
    script raises, or a request goes to another origin.  Only errors with the text `expected` are allowed.
    """
    complaints: list[str] = []
    contexts: list[BrowserContext] = []

    def watch_request(request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "blob:", "data:")):
            complaints.append(f"request to another origin: {request.url}")

    def open_page(
        path: str,
        base: str = "",
        before: Callable[[Page], None] | None = None,
        expected: str = "\0",
        **settings: Any,
    ) -> Page:
        def watch_console(said: ConsoleMessage) -> None:
            if said.type == "error" and expected not in said.text:
                complaints.append(said.text)

        context = browser.new_context(**{"viewport": {"width": 1360, "height": 800}, **settings})
        contexts.append(context)
        page = context.new_page()
        page.on("console", watch_console)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", watch_request)
        if before:
            before(page)
        page.goto((base or shop.url) + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
