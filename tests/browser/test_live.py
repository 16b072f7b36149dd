"""The page follows a server that goes on, dies, comes back, or has nothing yet."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from privateer_lab.services.processes import Services
from tests.browser.conftest import Open, begin, people, served
from tests.support.dashboards import EXPERIMENTS

pytestmark = pytest.mark.browser


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Services of one test, without any experiment."""
    with served(tmp_path_factory.mktemp("own")) as services:
        yield services


def test_an_empty_server_says_what_to_do_and_shows_what_is_created(own: Services, new_page: Open) -> None:
    page = new_page()
    page.goto(own.server)
    page.get_by_role("heading", name="There is no experiment yet").wait_for()
    assert "privateer create examples/" in page.locator("main").inner_text()
    begin(own, EXPERIMENTS["begun"])
    page.get_by_role("link", name="begun").wait_for()
    assert page.locator(".card").count() == 1


def test_a_live_experiment_advances(own: Services, new_page: Open) -> None:
    spec = begin(own, EXPERIMENTS["begun"]._replace(people=0))
    page = new_page()
    page.goto(f"{own.server}/#/begun")
    page.get_by_text("Round 1: 0 of 200 reports have come.").wait_for()
    page.get_by_text("No report has been counted.").wait_for()
    assert not page.get_by_role("slider", name="Version").is_visible()
    page.locator("#map").focus()
    people(own, spec, 450)
    page.get_by_text("Round 3: 50 of 200 reports have come.").wait_for()
    page.get_by_text("450 reports accepted, 0 reports refused.").wait_for()
    assert "Version 3 is published." in page.locator("#live").inner_text()
    assert page.get_by_role("slider", name="Version").get_attribute("max") == "3"
    # The page does not move under a reader.
    assert page.evaluate("document.activeElement.id") == "map"


def test_somebody_who_looks_at_an_earlier_version_goes_on_looking(own: Services, new_page: Open) -> None:
    spec = begin(own, EXPERIMENTS["begun"]._replace(people=250))
    page = new_page()
    page.goto(f"{own.server}/#/begun")
    slider = page.get_by_role("slider", name="Version")
    slider.focus()
    page.keyboard.press("Home")
    page.get_by_text("This is what people got under version 1.").wait_for()
    people(own, spec, 150, seed=2)
    page.get_by_text("Round 3: 0 of 200 reports have come.").wait_for()
    assert slider.get_attribute("aria-valuetext") == "1 of 3"


def test_a_server_that_dies_is_said_to_be_dead_until_it_is_back(own: Services, new_page: Open) -> None:
    begin(own, EXPERIMENTS["begun"])
    page = new_page()
    page.goto(f"{own.server}/#/begun")
    said = page.locator("#connection")
    page.get_by_text("Round 1: 50 of 200 reports have come.").wait_for()
    assert said.inner_text().startswith("Live: last answer at ")
    own.processes.kill("server")
    page.get_by_text(
        re.compile(r"^The server does not answer\. It last did at \d\d:\d\d, \d+ seconds? ago\.")
    ).wait_for()
    # What is known stays, and nobody has to wait for the next attempt.
    assert page.get_by_text("Round 1: 50 of 200 reports have come.").is_visible()
    again = page.get_by_role("button", name="Try now")
    assert again.is_visible()
    from playwright.sync_api import TimeoutError as Waited

    own.processes.start("server")
    own.processes.wait("server")
    with suppress(Waited):  # on a busy machine the page's own next attempt may come first
        again.click(timeout=3000)
    page.get_by_text(re.compile("^Live: last answer at ")).wait_for()
    again.wait_for(state="hidden")
    page.get_by_text("Round 1: 50 of 200 reports have come.").wait_for()


def test_who_breaks_off_goes_on_with_the_last_message(own: Services, new_page: Open) -> None:
    """A stream that ends after a message: the next one begins behind it."""
    begin(own, EXPERIMENTS["begun"]._replace(people=0))
    page, last, shown = new_page(), list[str | None](), httpx.get(f"{own.server}/experiments").json()["experiments"]
    news = json.dumps({"whole": True, "experiments": shown, "deleted": []})

    def once(route: Any) -> None:
        last.append(route.request.headers.get("last-event-id"))
        if len(last) > 1:
            route.continue_()
        else:
            route.fulfill(body=f"id: x-1\ndata: {news}\n\n", content_type="text/event-stream")

    page.route("**/events", once)
    page.goto(own.server)
    page.get_by_role("link", name="begun").wait_for()
    with page.expect_request(lambda request: request.url.endswith("/events") and len(last) == 1):
        pass
    page.get_by_text(re.compile("^Live: last answer at ")).wait_for()
    assert last[:2] == [None, "x-1"]


@pytest.mark.parametrize("status", [503, 404, 502])
def test_where_streams_are_refused_the_page_asks(own: Services, new_page: Open, status: int) -> None:
    spec = begin(own, EXPERIMENTS["begun"]._replace(people=0))
    page = new_page()
    page.route("**/events", lambda route: route.fulfill(status=status, body="{}", content_type="application/json"))
    page.goto(f"{own.server}/#/begun")
    page.get_by_text("Round 1: 0 of 200 reports have come.").wait_for()
    assert page.locator("#connection").inner_text().startswith("Asking every few seconds: last answer at ")
    people(own, spec, 50)
    page.get_by_text("Round 1: 50 of 200 reports have come.").wait_for()


def test_a_page_that_follows_asks_nothing_while_nothing_changes(own: Services, new_page: Open) -> None:
    begin(own, EXPERIMENTS["begun"])
    page, asked = new_page(), list[str]()
    page.goto(f"{own.server}/#/begun")
    page.get_by_text(re.compile("^Live: last answer at ")).wait_for()
    page.get_by_text("membership advantage").first.wait_for()
    page.on("request", lambda request: asked.append(request.url))
    said = page.locator("#connection").inner_text()
    page.locator("#connection", has_not_text=said).wait_for()
    assert asked == []


def test_a_page_that_never_had_an_answer_says_so(own: Services, new_page: Open) -> None:
    page = new_page()
    silent = re.compile("/(experiments|events)$")
    page.route(silent, lambda route: route.abort())
    page.goto(own.server)
    page.get_by_text("The server does not answer. This page tries again every few seconds.").wait_for()
    page.unroute(silent)
    page.get_by_role("heading", name="There is no experiment yet").wait_for()


def test_what_an_operator_changes_is_said(own: Services, new_page: Open) -> None:
    begin(own, EXPERIMENTS["begun"])
    page, admin = new_page(), {"authorization": f"Bearer {own.token}"}
    page.goto(f"{own.server}/#/begun")
    page.get_by_text("People who come are asked.").wait_for()
    assert httpx.post(f"{own.admin}/experiments/begun/pause", headers=admin).status_code == 200
    page.get_by_text("Nobody who comes now is asked").wait_for()
    page.get_by_text("privateer change resume begun").wait_for(state="attached")
    assert httpx.delete(f"{own.admin}/experiments/begun", headers=admin).status_code == 200
    page.get_by_text("It was deleted, and its name is never used again.").wait_for()
