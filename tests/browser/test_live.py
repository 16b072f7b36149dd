"""The page follows a server that goes on, dies, comes back, or has nothing yet."""

import re
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from privateer_lab.services.processes import Services
from tests.browser.conftest import Open, begin, people, running_services
from tests.support.dashboards import EXPERIMENTS

pytestmark = pytest.mark.browser


@pytest.fixture
def own_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Services of one test, without any experiment."""
    with running_services(tmp_path_factory.mktemp("own")) as services:
        yield services


def test_an_empty_server_says_what_to_do_and_shows_what_is_created(own_services: Services, new_page: Open) -> None:
    page = new_page()
    page.goto(own_services.server)
    page.get_by_role("heading", name="There is no experiment yet").wait_for()
    assert "privateer create examples/" in page.locator("main").inner_text()
    begin(own_services, EXPERIMENTS["begun"])
    page.get_by_role("link", name="begun").wait_for()
    assert page.locator(".card").count() == 1


def test_a_live_experiment_advances(own_services: Services, new_page: Open) -> None:
    spec = begin(own_services, EXPERIMENTS["begun"]._replace(people=0))
    page = new_page()
    page.goto(f"{own_services.server}/#/begun")
    page.get_by_text("Round 1: 0 of 200 reports have come.").wait_for()
    page.get_by_text("No report has been counted.").wait_for()
    assert not page.get_by_role("slider", name="Version").is_visible()
    page.locator("#map").focus()
    people(own_services, spec, 450)
    page.get_by_text("Round 3: 50 of 200 reports have come.").wait_for()
    page.get_by_text("450 reports accepted, 0 reports refused.").wait_for()
    assert "Version 3 is published." in page.locator("#live").inner_text()
    assert page.get_by_role("slider", name="Version").get_attribute("max") == "3"
    # The page does not move under a reader.
    assert page.evaluate("document.activeElement.id") == "map"


def test_the_version_slider_stays_when_a_new_version_is_published(own_services: Services, new_page: Open) -> None:
    spec = begin(own_services, EXPERIMENTS["begun"]._replace(people=250))
    page = new_page()
    page.goto(f"{own_services.server}/#/begun")
    slider = page.get_by_role("slider", name="Version")
    slider.focus()
    page.keyboard.press("Home")
    page.get_by_text("This is what people got under version 1.").wait_for()
    people(own_services, spec, 150, seed=2)
    page.get_by_text("Round 3: 0 of 200 reports have come.").wait_for()
    assert slider.get_attribute("aria-valuetext") == "1 of 3"


def test_the_page_reports_a_dead_server_until_it_answers_again(own_services: Services, new_page: Open) -> None:
    begin(own_services, EXPERIMENTS["begun"])
    page = new_page()
    page.goto(f"{own_services.server}/#/begun")
    connection = page.locator("#connection")
    page.get_by_text("Round 1: 50 of 200 reports have come.").wait_for()
    assert connection.inner_text().startswith("Live: last answer at ")
    own_services.processes.kill("server")
    page.get_by_text(
        re.compile(r"^The server does not answer\. It last did at \d\d:\d\d, \d+ seconds? ago\.")
    ).wait_for()
    # What is known stays, and nobody has to wait for the next attempt.
    assert page.get_by_text("Round 1: 50 of 200 reports have come.").is_visible()
    retry_button = page.get_by_role("button", name="Try now")
    assert retry_button.is_visible()
    from playwright.sync_api import TimeoutError as Waited

    own_services.processes.start("server")
    own_services.processes.wait("server")
    with suppress(Waited):  # on a busy machine the page's own next attempt may come first
        retry_button.click(timeout=3000)
    page.get_by_text(re.compile("^Live: last answer at ")).wait_for()
    retry_button.wait_for(state="hidden")
    page.get_by_text("Round 1: 50 of 200 reports have come.").wait_for()


def test_a_page_that_never_had_an_answer_says_so(own_services: Services, new_page: Open) -> None:
    page = new_page()
    silent = re.compile("/experiments$")
    page.route(silent, lambda route: route.abort())
    page.goto(own_services.server)
    page.get_by_text("The server does not answer. This page tries again every few seconds.").wait_for()
    page.unroute(silent)
    page.get_by_role("heading", name="There is no experiment yet").wait_for()


def test_the_page_states_changes_of_an_operator(own_services: Services, new_page: Open) -> None:
    begin(own_services, EXPERIMENTS["begun"])
    page, admin = new_page(), {"authorization": f"Bearer {own_services.token}"}
    page.goto(f"{own_services.server}/#/begun")
    page.get_by_text("People who come are asked.").wait_for()
    assert httpx.post(f"{own_services.admin}/experiments/begun/pause", headers=admin).status_code == 200
    page.get_by_text("Nobody who comes now is asked").wait_for()
    page.get_by_text("privateer change resume begun").wait_for(state="attached")
    assert httpx.delete(f"{own_services.admin}/experiments/begun", headers=admin).status_code == 200
    page.get_by_text("It was deleted, and its name is never used again.").wait_for()
