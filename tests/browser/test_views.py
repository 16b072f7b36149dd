"""Every view shows the contents of the routes, by mouse and by keyboard, at every width, and accessibly."""

import re
from typing import Any

import httpx
import pytest

from privateer_lab.services.processes import Services
from tests.browser.conftest import Open, open_all
from tests.support.dashboards import EXPERIMENTS, HOSTILE
from tests.support.sealing import body_of

pytestmark = pytest.mark.browser


def show(page: Any, at: Services, name: str) -> Any:
    """Open an experiment and wait until all of it is there."""
    page.goto(f"{at.server}/#/{name}")
    page.get_by_role("heading", name="History").wait_for()
    page.get_by_text(re.compile("membership advantage|baseline")).first.wait_for()
    return page


def text_of(page: Any, part: str) -> str:
    return str(page.locator(f"#{part}").inner_text())


def test_the_list_has_every_experiment(at: Services, new_page: Open) -> None:
    page = new_page()
    page.goto(at.server)
    page.locator(".card").first.wait_for()
    facts = {
        experiment["name"]: experiment for experiment in httpx.get(f"{at.server}/experiments").json()["experiments"]
    }
    assert set(page.locator(".card h2 a").all_inner_texts()) == set(facts) == set(EXPERIMENTS)
    card = page.locator(".card", has=page.get_by_role("link", name="plane", exact=True)).inner_text()
    for text in ("open", "partition", "local", "4,500 of 8,000 reports at most"):
        assert text in card
    page.get_by_label("Find").fill("SHO")
    assert page.locator(".card h2 a").all_inner_texts() == ["shop"]
    page.get_by_role("link", name="shop").click()
    page.get_by_role("heading", name="shop", level=1).wait_for()
    assert page.title() == "shop – Privateer"


def shows(at: Services, name: str, version: int | None = None) -> Any:
    """What the policy of an experiment shows, now or in a version."""
    version_path = "" if version is None else f"/{version}"
    return httpx.get(f"{at.server}/experiments/{name}/policy{version_path}").json()["policy"]["shows"]


def answer(at: Services, name: str) -> Any:
    return httpx.get(f"{at.server}/experiments/{name}/state").json()["answer"]


def test_bins_are_a_map_with_a_table_beside(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "plane")
    policy = shows(at, "plane")
    by_role = page.get_by_role("group", name=f"Map of {len(policy['bins'])} bins over x1 and x2")
    shapes = by_role.locator("path.arm").evaluate_all(
        "all => all.map(one => one.getAttribute('d').split('z').length - 1)"
    )
    assert sum(shapes) == len(policy["bins"])
    assert "A = left, ahead in" in text_of(page, "policy")
    page.get_by_text(f"{len(policy['bins'])} bins of the policy as a table").click()
    page.locator("#bins").wait_for()
    assert page.locator("#bins tbody tr").count() == min(25, len(policy["bins"]))
    # The bin in the middle has just these arms, in these shares, and estimates with intervals.
    middle = next(
        row
        for row in policy["bins"]
        if all(low <= 0.5 < high for low, high in zip(row["lower"], row["upper"], strict=True))
    )
    chosen = page.locator(".chosen").inner_text()
    assert all(f"= {arm}:" in chosen for arm in middle["arms"])
    assert page.locator("#bin-estimates tbody tr").count() == len(middle["arms"])
    assert page.locator(".chosen svg .interval").count() == 3 * len(middle["arms"])


def test_arrow_keys_walk_over_the_map(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "plane")
    page.locator("#map").focus()
    seen = {page.locator(".chosen p").first.inner_text()}
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
        seen.add(page.locator(".chosen p").first.inner_text())
    assert len(seen) > 2
    assert page.locator("#live").inner_text().startswith(page.locator(".chosen p").first.inner_text())
    assert page.evaluate("document.activeElement.id") == "map"


def test_a_click_chooses_a_bin(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "plane")
    before = page.locator(".chosen p").first.inner_text()
    page.locator("#map svg").click(position={"x": 70, "y": 300})
    after = page.locator(".chosen p").first.inner_text()
    assert after != before
    assert after.startswith("x1: 0 to ")


def test_the_slider_shows_earlier_versions(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "plane")
    slider = page.get_by_role("slider", name="Version")
    newest = int(slider.get_attribute("max"))
    assert newest == httpx.get(f"{at.server}/experiments/plane").json()["version"] > 2
    slider.focus()
    page.keyboard.press("Home")
    page.get_by_text("This is what people got under version 1.").wait_for()
    first = shows(at, "plane", 1)["bins"]
    page.get_by_text(re.compile(rf"^{len(first)} bins?\. Click")).wait_for()
    assert slider.get_attribute("aria-valuetext") == f"1 of {newest}"


def test_other_columns_are_chosen_and_sliced(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "levels")
    upwards = page.get_by_label("Upwards")
    names = upwards.locator("option").all_inner_texts()
    assert "premium" in names
    assert "hours is missing" in names
    upwards.select_option("premium")
    page.get_by_role("group", name=re.compile("over .*premium")).wait_for()


def test_effects_are_drawn_with_intervals_and_evidence(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "shop")
    text = text_of(page, "findings")
    titles = ["Effects against the control", "Average effects", "Recommendations", "Guardrail: refund", "Over time"]
    for title in [*titles, "What it rests on", "Sample ratio", "Intervals hold with 95 % confidence"]:
        assert title in text
    published = answer(at, "shop")
    by_group = [each for each in published["effects"] if each["group"] is not None]
    panel = page.locator("#findings .finding", has_text="Effects against the control")
    valued = [each for each in by_group if each["value"] is not None]
    assert panel.locator("svg .mark").count() == len(valued) > 0
    assert panel.locator("svg rect.mark").count() == sum(each["reason"].startswith("decided") for each in valued) > 0
    panel.get_by_text("As a table").click()
    panel.locator("tbody").wait_for()
    assert panel.locator("tbody tr").count() == len(by_group)
    over_time = next(part for part in published["parts"] if part["kind"] == "over time")
    assert page.locator("#findings .smalls figure").count() == len(over_time["effects"]) > 0
    groups = shows(at, "shop")["groups"]
    assert page.locator("#policy .group h3").all_inner_texts() == [group["name"] for group in groups]


def test_arms_without_context_have_estimates_and_shares(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "offers")
    published = answer(at, "offers")
    assert page.locator("#findings svg").first.locator(".mark").count() == len(published["estimates"]) == 10
    assert page.get_by_role("img", name=re.compile("^Everybody: ")).count() == 1
    sentence = httpx.get(f"{at.server}/experiments/offers/answer").json()["conclusion"]["headline"]["sentence"]
    assert sentence in text_of(page, "answer")


def test_phases_show_the_active_arms_of_each_version(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "phases")
    page.get_by_role("heading", name="What was left in every version").wait_for()
    versions = httpx.get(f"{at.server}/experiments/phases").json()["version"]
    n_active = [len(shows(at, "phases", version)["active"]) for version in range(1, versions + 1)]
    assert page.locator("#policy rect.kept, #policy rect.played").count() == sum(n_active)
    assert "Widest interval" in text_of(page, "history")
    assert "Nobody is promised anything" in text_of(page, "privacy")


def test_numbers_of_arms_are_a_table(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "numbers")
    assert page.locator("#numbers thead th").all_inner_texts() == ["name", "a", "b"]


def test_few_people_are_said_to_be_few(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "begun")
    assert "Only 50 reports have come." in text_of(page, "findings")


def test_privacy_is_in_plain_words(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "plane")
    risks = httpx.get(f"{at.server}/experiments/plane/risk").json()["risks"]
    text = text_of(page, "privacy")
    assert "Each person is promised epsilon 8." in text
    assert text.count("guesses right at most 99.97 times of 100") == len(risks)
    assert "worst pair of pure epsilon" in text
    assert "Devices run the client library" in text


def test_refused_reports_have_reasons(at: Services, new_page: Open) -> None:
    for _ in range(3):
        httpx.post(f"{at.server}/reports", content=b"junk")
    publication = httpx.get(f"{at.server}/experiments/plane/policy", headers={"accept": "application/msgpack"}).content
    assert httpx.post(f"{at.server}/reports", content=body_of(publication, [b"x" * 5])).status_code == 400
    page = show(new_page(), at, "plane")
    page.locator("#refused").wait_for()
    assert "wrong-size" in text_of(page, "reports")
    assert "The sealed bytes are not as long as the round's reports." in text_of(page, "reports")


def test_commands_that_change_an_experiment_are_named(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "plane")
    assert not page.locator("#change").is_visible()
    page.get_by_role("link", name="Change it").click()
    page.get_by_role("heading", name="Change it").wait_for()
    assert "privateer change pause plane" in text_of(page, "change")
    assert not page.locator("#answer").is_visible()
    assert page.locator("main form, main button").count() == 0


def test_the_screen_of_changes_links_back(at: Services, new_page: Open) -> None:
    page = show(new_page(), at, "plane")
    page.goto(f"{at.server}/#/plane/change")
    page.get_by_role("link", name="What it found").click()
    page.get_by_role("heading", name="Answer").wait_for()
    assert not page.locator("#change").is_visible()


def test_a_part_of_a_page_has_an_address(at: Services, new_page: Open) -> None:
    page = new_page()
    page.goto(f"{at.server}/#/shop/privacy")
    page.get_by_text(re.compile("membership advantage")).first.wait_for()
    assert page.evaluate("document.activeElement.id") == "privacy-title"
    page.get_by_role("link", name="History").click()
    page.locator("#history-title:focus").wait_for()
    assert page.url.endswith("#/shop/history")


def test_an_unknown_name_leads_back_to_the_list(at: Services, new_page: Open) -> None:
    page = new_page()
    page.goto(f"{at.server}/#/nobody")
    page.get_by_text("This server has no such experiment.").wait_for()
    page.get_by_role("link", name="← All experiments").click()
    page.get_by_role("heading", name="Experiments").wait_for()


def test_names_of_a_spec_are_shown_as_text(at: Services, new_page: Open) -> None:
    page = new_page()
    for name in ("levels", "shop"):
        show(page, at, name)
        open_all(page)
        assert HOSTILE in page.locator("main").inner_text()
        assert page.locator("main img").count() == 0
        assert page.evaluate("window.hurt") is None


@pytest.mark.parametrize("name", ["", *EXPERIMENTS])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_nothing_is_wider_than_the_window(at: Services, new_page: Open, name: str, width: int) -> None:
    page = new_page(width)
    if name:
        show(page, at, name)
        open_all(page)
    else:
        page.goto(at.server)
        page.locator(".card").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["", *EXPERIMENTS])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(at: Services, new_page: Open, name: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = new_page(900, scheme)
    if name:
        show(page, at, name)
        open_all(page)
    else:
        page.goto(at.server)
        page.locator(".card").first.wait_for()
    violations = Axe().run(page).response["violations"]
    assert [violation for violation in violations if violation["impact"] in ("serious", "critical")] == []


def test_axe_finds_what_is_planted(at: Services, new_page: Open) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = show(new_page(), at, "plane")
    page.evaluate("document.querySelector('#version').closest('label').replaceWith(document.querySelector('#version'))")
    assert any(violation["id"] == "label" for violation in Axe().run(page).response["violations"])
