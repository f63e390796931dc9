"""An operator at a real browser: from the overview to the cause of a failure, and what to do about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.dashboard.browser.conftest import Open, Shop

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCREENS = ["/", "/jobs", "/jobs/shop.report", "/fires", "/queues", "/nodes", "/audit"]


@pytest.fixture(scope="module", autouse=True)
def _failure(shop: Shop) -> None:
    """A job that failed, and a dead message."""
    assert shop.run("fire", "report", "--wait") == 1
    shop.push("shop.send.push('nobody'); shop.index.push('all')")


def confirm(page: Page, reason: str = "") -> None:
    page.locator("dialog input[name=reason]").fill(reason)
    page.locator("dialog button.main").click()
    page.locator("dialog").wait_for(state="detached")


def test_from_the_overview_to_the_output_of_a_failure_and_run_again(visit: Open) -> None:
    page = visit("/")
    page.locator(".verdict.bad", has_text="shop.report failed").wait_for()
    page.locator(".card", has_text="Needs attention").get_by_role("link", name="report", exact=True).click()
    page.wait_for_url(re.compile("/fires/shop.report"))
    output = page.locator(".output pre")
    output.locator(".f1", has_text="ERROR").wait_for()
    text = output.inner_text()
    assert "<script>document.title = 'owned'</script>" in text  # shown, not run
    assert "invoice⟨U+202E⟩fdp.exe" in text
    assert "a link and" in text and "evil.example" not in text
    assert page.locator("main script, main img").count() == 0
    assert "detent" in page.title()
    page.get_by_role("textbox", name="find in output").fill("disk is full")
    assert page.locator("mark").first.inner_text() == "disk is full"
    with page.expect_download() as download:
        page.get_by_role("link", name="download").click()
    assert "\x1b[31mERROR" in download.value.path().read_text()
    page.locator(".crumb").get_by_role("link", name="report").click()
    page.locator("h1", has_text="report").wait_for()
    page.locator("main tbody tr").first.click()
    page.wait_for_url(re.compile("/fires/shop.report"))
    failed = page.url
    page.get_by_role("button", name="Run again").click()
    confirm(page, "the disk was cleared")
    page.wait_for_url(lambda url: url != failed)
    page.locator(".card .out.bad", has_text="failed").first.wait_for()


def test_a_job_is_paused_with_a_reason_and_resumed(visit: Open) -> None:
    page = visit("/jobs/shop.backup")
    page.get_by_role("button", name="Pause").click()
    page.locator("dialog").get_by_role("button", name="8 h").click()
    confirm(page, "migration")
    page.locator(".verdict.warn", has_text="migration").wait_for()
    page.get_by_role("link", name="Now").click()
    page.locator(".tl text.paused", has_text="migration").wait_for()
    page.go_back()
    page.get_by_role("button", name="Resume").click()
    confirm(page)
    page.get_by_role("button", name="Pause").wait_for()
    page.get_by_role("link", name="Audit").click()
    page.locator("tr", has_text="migration").wait_for()


def test_a_running_fire_shows_its_output_and_is_killed(visit: Open) -> None:
    page = visit("/jobs/shop.slow")
    page.get_by_role("button", name="Run now").click()
    confirm(page)
    page.locator(".toast").get_by_role("link", name="Open").click()
    page.locator(".output .f3", has_text="slow").wait_for()
    page.get_by_role("button", name="Kill").click()
    confirm(page, "too slow")
    page.locator(".card .out", has_text="cancelled").first.wait_for()


def test_a_job_runs_with_arguments_which_the_server_checks(visit: Open) -> None:
    page = visit("/jobs/shop.remind", expected="status of 400")
    page.get_by_role("button", name="Run now").click()
    arguments = page.locator("dialog textarea[name=args]")
    arguments.fill('["ana@example.org"')
    page.locator("dialog button.main").click()
    page.locator("dialog .error", has_text="not JSON").wait_for()
    arguments.fill("[5]")
    page.locator("dialog button.main").click()
    page.locator("dialog .error", has_text='the argument "to" is of type int').wait_for()
    arguments.fill('{"to": "ana@example.org"}')
    confirm(page, "she asked")
    page.locator(".toast").get_by_role("link", name="Open").click()
    page.locator(".facts dd", has_text='{"to":"ana@example.org"}').wait_for()
    page.locator(".output pre", has_text="reminded ana@example.org").wait_for()
    page.get_by_role("link", name="Audit").click()
    page.locator("tr", has_text="she asked").get_by_text("ana@example.org").wait_for()


def test_a_task_runs_with_arguments_and_a_dead_message_is_retried_from_its_page(visit: Open) -> None:
    page = visit("/queues")
    task = page.locator(".card", has_text="Tasks").locator("li", has_text="send")
    task.get_by_role("button", name="Run").click()
    page.locator("dialog textarea").fill('["no one"]')
    confirm(page)
    page.locator(".toast").get_by_role("link", name="Open").click()
    page.locator(".out.bad", has_text="failed").first.wait_for()
    dead = page.url
    page.get_by_role("button", name="Retry").click()
    confirm(page)
    page.wait_for_url(lambda url: url != dead)


def test_a_job_has_its_schedule_in_words_and_its_next_ten_instants(visit: Open) -> None:
    page = visit("/jobs/shop.backup")
    page.locator(".words", has_text="Runs at 02:00 every day (Europe/Berlin).").wait_for()
    instants = page.locator(".card", has_text="Next instants").locator("li")
    instants.nth(9).wait_for()
    assert instants.count() == 10
    assert all("02:00 Europe/Berlin" in text for text in instants.all_inner_texts())
    page.locator(".card", has_text="Policy in force").get_by_text("Forbid, at most 1 running").wait_for()
    page = visit("/jobs/shop.in-the-gap")
    page.locator(".card", has_text="Next instants").locator(".note", has_text="02:30").first.wait_for()


def test_the_timeline_shows_all_instants_of_the_next_two_minutes(visit: Open) -> None:
    page = visit("/jobs/shop.tick")
    rings = page.locator(".tl svg circle.m-next")
    rings.nth(9).wait_for(state="attached")
    places = rings.evaluate_all("rings => rings.map(ring => ring.cx.baseVal.value).sort((a, b) => a - b)")
    assert places[-1] - places[0] > 100  # pixels


def test_dead_letters_are_retried_and_forgotten(visit: Open) -> None:
    page = visit("/")
    page.locator(".stats a.warn", has_text="dead letters").click()
    page.locator(".tag.bad", has_text="no node serves it").wait_for()
    page.get_by_role("link", name="mail").click()
    letters = page.locator("tr", has_text="no address: nobody")
    letters.get_by_role("button", name="Retry").click()
    confirm(page)
    page.locator(".toast", has_text="on the queue again").wait_for()
    again = letters.filter(has_text="~1")  # the new message, which died, too
    again.locator("input").check()
    page.get_by_role("button", name="Forget 1").click()
    confirm(page)
    again.wait_for(state="detached")


def test_several_fires_run_again_after_a_dialog_that_says_how_many(visit: Open) -> None:
    page = visit("/fires?job=shop.tick&outcome=succeeded")
    rows = page.locator("tbody tr")
    rows.nth(1).wait_for()
    for key in "jxjx":
        page.keyboard.press(key)
    page.get_by_role("button", name="Run 2 again").click()
    page.locator("dialog h2", has_text="Run 2 fires again").wait_for()
    confirm(page)
    page.locator(".toast", has_text="2 fires started again").wait_for()


def test_fires_are_filtered_in_the_address_paged_and_killed_together(visit: Open, shop: Shop) -> None:
    shop.push("shop.index.push_many([('page',)] * 60)")
    page = visit("/fires?state=pending")
    page.locator("tbody tr").first.wait_for()
    queue = page.get_by_role("textbox", name="queue")
    queue.fill("db")
    queue.press("Enter")
    page.wait_for_url(re.compile(r"/fires\?(?=.*state=pending)(?=.*queue=db)"))
    rows = page.locator("tbody tr")
    rows.nth(49).wait_for()
    assert rows.count() == 50
    page.get_by_role("button", name="Older").click()
    rows.nth(59).wait_for()
    count = rows.count()
    page.get_by_role("button", name=f"Select all {count}").click()
    page.get_by_role("button", name=f"Kill {count}").click()
    page.locator("dialog h2", has_text=f"Kill {count} fires").wait_for()
    confirm(page, "too many")
    page.locator(".toast", has_text=f"{count} fires being stopped").wait_for()
    page.locator(".empty", has_text="No fire matches").wait_for()


def test_times_are_shown_in_utc_or_local(visit: Open) -> None:
    page = visit("/jobs/shop.backup", timezone_id="Asia/Tokyo")
    first = page.locator(".card", has_text="Next instants").locator("li time").first
    first.wait_for()
    in_utc = first.inner_text()
    page.get_by_role("button", name="UTC").click()
    page.get_by_role("button", name="GMT+9").wait_for()
    assert first.inner_text() != in_utc
    page.keyboard.press("u")
    page.get_by_role("button", name="UTC").wait_for()
    assert first.inner_text() == in_utc


def test_every_screen_and_the_actions_of_a_row_have_a_key(visit: Open) -> None:
    page = visit("/")
    page.locator(".verdict").wait_for()
    for key, path in {"f": "fires", "q": "queues", "o": "nodes", "a": "audit", "j": "jobs"}.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(re.compile(f"/{path}$"))
    page.locator("tbody tr").nth(1).wait_for()
    for key in "jjk":
        page.keyboard.press(key)
    name = page.locator("tr:focus a.name").inner_text()
    assert name == page.locator("tbody tr a.name").first.inner_text()
    page.keyboard.press("r")
    page.locator("dialog h2", has_text=f"Run {name} now").wait_for()


def test_everything_works_with_the_keyboard(visit: Open) -> None:
    page = visit("/")
    page.locator(".verdict").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url(re.compile("/jobs$"))
    page.locator("tbody tr").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("rep")
    page.locator("tbody tr").nth(1).wait_for(state="detached")
    page.keyboard.press("Enter")
    page.keyboard.press("p")
    page.locator("dialog h2", has_text="Pause report").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/jobs/shop.report$"))
    page.keyboard.press("?")
    page.locator("dialog h2", has_text="Keys").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.keyboard.press("Escape")
    page.wait_for_url(re.compile("/jobs$"))
    page.keyboard.press("g")
    page.keyboard.press("n")
    page.locator(".tl svg .m-ok").first.wait_for(state="attached")
    page.locator(".tl svg[tabindex]").focus()
    page.keyboard.press("ArrowLeft")
    page.locator(".tip").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/fires/shop"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_screen_scrolls_sideways_at_360_pixels(visit: Open, shop: Shop, scheme: str) -> None:
    page = visit("/", color_scheme=scheme, viewport={"width": 360, "height": 740})
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", background))) < 64) == (scheme == "dark")
    for path in SCREENS:
        page.goto(shop.url + path)
        page.locator("main .card").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_a_mounted_dashboard_keeps_its_prefix_and_a_reader_has_no_actions(visit: Open, shop: Shop) -> None:
    page = visit("/jobs/shop.tick", base=shop.mount("/ops/jobs"))
    page.locator(".who", has_text="read only").wait_for()
    page.locator(".card", has_text="History").locator("tbody tr").first.wait_for()
    assert page.get_by_role("button", name="Run now").count() == 0
    page.get_by_role("link", name="Jobs").first.click()
    page.wait_for_url(re.compile("/ops/jobs/jobs$"))
    page.locator("tbody tr").first.wait_for()
    assert page.locator("main td.acts button").count() == 0
    page.get_by_role("link", name="Fires").click()
    page.locator("tbody tr").first.wait_for()
    assert page.locator("main input[type=checkbox]").count() == 0
    page.locator("tbody tr", has_text="tick").first.click()
    page.wait_for_url(re.compile("/ops/jobs/fires/shop.tick"))
    page.locator(".output pre", has_text="tick").wait_for()
    page.get_by_role("link", name="Now").click()
    page.wait_for_url(re.compile("/ops/jobs/$"))
    page.locator(".live.on").wait_for()


def test_without_a_stream_the_page_polls(visit: Open) -> None:
    def refuse_streams(page: Page) -> None:
        page.route(re.compile("/api/events"), lambda route: route.fulfill(status=204))

    page = visit("/", before=refuse_streams)
    page.locator(".live.poll").wait_for()
    page.locator(".tl").wait_for()


def test_a_hidden_tab_closes_its_stream(visit: Open) -> None:
    page = visit("/")
    page.locator(".live.on").wait_for()
    with page.expect_event("requestfailed", lambda request: "/api/events" in request.url):
        page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
    with page.expect_request(re.compile("/api/events")):
        page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")


def test_a_stopped_store_leaves_the_last_picture_greyed(visit: Open, shop: Shop) -> None:
    page = visit("/")
    page.locator(".live.on").wait_for()
    shop.redis.end()
    page.locator(".verdict.keep", has_text="does not answer").wait_for()
    page.locator(".live.down", has_text="old").wait_for()
    assert page.locator("main.stale .tl").count() == 1
    shop.redis.start()
    page.locator("main:not(.stale) .tl").wait_for()
    page.locator(".live.on").wait_for()
