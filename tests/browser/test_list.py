"""The list of experiments: answers in a few words, and finding one among two hundred."""

import json
from typing import Any

import httpx
import pytest

from privateer_lab.services.processes import Services
from tests.browser.conftest import Open
from tests.support.dashboards import EXPERIMENTS

pytestmark = pytest.mark.browser
MANY = 200
STATUSES = ("open", "finished", "paused", "stopped")


def names(page: Any) -> list[str]:
    return list(page.locator(".card h2 a").all_inner_texts())


def opened(at: Services, page: Any) -> Any:
    """The list, once every answer is there."""
    page.goto(at.server)
    page.locator(".card").first.wait_for()
    page.locator(".verdict", has_text="…").first.wait_for(state="detached")
    return page


def test_every_experiment_has_an_answer_in_a_few_words(at: Services, new_page: Open) -> None:
    page = opened(at, new_page())
    assert len(names(page)) == len(EXPERIMENTS)
    for name in EXPERIMENTS:
        card = page.locator(".card", has=page.get_by_role("link", name=name, exact=True))
        found = httpx.get(f"{at.server}/experiments/{name}/answer").json()["conclusion"]["headline"]
        said = card.locator(".verdict").inner_text()
        assert len(said.split()) <= 10, said
        assert (said == "No result yet") == (found["finding"] == "nothing yet")
        assert ", since " in card.inner_text()


@pytest.mark.parametrize("width", [390, 1440])
def test_one_of_two_hundred_is_found_by_name_answer_and_status(at: Services, new_page: Open, width: int) -> None:
    """The routes are those of one experiment, told two hundred times; streams are refused, so that the page asks."""
    page = new_page(width)
    one = httpx.get(f"{at.server}/experiments").json()["experiments"][0]
    known = httpx.get(f"{at.server}/experiments/{one['name']}/answer").json()
    rows = [one | {"name": f"test-{k}", "status": STATUSES[k % 4], "accepted": (k * 37) % MANY} for k in range(MANY)]

    def said(route: Any) -> None:
        path = route.request.url.removeprefix(at.server)
        if path == "/events":
            route.abort()
        elif path == "/experiments":
            route.fulfill(content_type="application/json", body=json.dumps({"experiments": rows}))
        else:
            number = int(path.split("/")[2].removeprefix("test-"))
            about = {"finding": "one option", "sureness": "decided", "option": f"screen {number}", "value": None}
            conclusion = known["conclusion"] | {"headline": known["conclusion"]["headline"] | about}
            began = f"2026-{1 + number % 12:02d}-01T00:00:00Z"
            body = json.dumps(known | {"conclusion": conclusion, "began": began})
            route.fulfill(content_type="application/json", body=body)

    page.route("**/events", said)
    page.route("**/experiments**", said)
    opened(at, page)
    assert page.get_by_text("200 experiments, 50 of them open.").count() == 1
    assert names(page)[:3] == ["test-0", "test-4", "test-8"]
    page.get_by_label("Sort by").select_option("most reports")
    assert names(page)[0] == next(row["name"] for row in rows if row["accepted"] == MANY - 1)
    page.get_by_label("Sort by").select_option("newest first")
    assert all(int(name.removeprefix("test-")) % 12 == 11 for name in names(page)[:16])
    page.get_by_label("Status").select_option("paused")
    assert len(names(page)) == 50
    page.get_by_label("Find").fill("SCREEN 42")
    assert names(page) == ["test-42"]
    assert page.get_by_text("1 shown.").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
