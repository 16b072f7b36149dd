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


def open_list(at: Services, page: Any) -> Any:
    """The list, once every answer is there."""
    page.goto(at.server)
    page.locator(".card").first.wait_for()
    page.locator(".verdict", has_text="…").first.wait_for(state="detached")
    return page


def test_every_experiment_has_an_answer_in_a_few_words(at: Services, new_page: Open) -> None:
    page = open_list(at, new_page())
    assert len(names(page)) == len(EXPERIMENTS)
    for name in EXPERIMENTS:
        card = page.locator(".card", has=page.get_by_role("link", name=name, exact=True))
        headline = httpx.get(f"{at.server}/experiments/{name}/answer").json()["conclusion"]["headline"]
        verdict = card.locator(".verdict").inner_text()
        assert len(verdict.split()) <= 10, verdict
        assert (verdict == "No result yet") == (headline["finding"] == "nothing yet")
        assert ", since " in card.inner_text()


@pytest.mark.parametrize("width", [390, 1440])
def test_search_finds_experiments_by_name_answer_and_status(at: Services, new_page: Open, width: int) -> None:
    """Routes answer with the facts of an experiment under two hundred names."""
    page = new_page(width)
    facts = httpx.get(f"{at.server}/experiments").json()["experiments"][0]
    published = httpx.get(f"{at.server}/experiments/{facts['name']}/answer").json()
    rows = [facts | {"name": f"test-{k}", "status": STATUSES[k % 4], "accepted": (k * 37) % MANY} for k in range(MANY)]

    def answer_request(route: Any) -> None:
        path = route.request.url.removeprefix(at.server)
        if path == "/experiments":
            route.fulfill(content_type="application/json", body=json.dumps({"experiments": rows}))
        else:
            number = int(path.split("/")[2].removeprefix("test-"))
            about = {"finding": "one arm", "confidence_label": "decided", "arm": f"screen {number}", "value": None}
            conclusion = published["conclusion"] | {"headline": published["conclusion"]["headline"] | about}
            began = f"2026-{1 + number % 12:02d}-01T00:00:00Z"
            body = json.dumps(published | {"conclusion": conclusion, "began": began})
            route.fulfill(content_type="application/json", body=body)

    page.route("**/experiments**", answer_request)
    open_list(at, page)
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
