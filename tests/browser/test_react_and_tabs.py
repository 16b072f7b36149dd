"""A participant sees one arm: in components that React mounts twice, in rendered pages and in two tabs."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_lab.services.rest import create_experiment
from tests.browser.packed_site import build, serving
from tests.support.firefox import firefox

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

_ARMS = ["delivery", "discount", "gift", "nothing"]
_SPEC = {
    "experiment": {"name": "offers", "arms": _ARMS, "horizon": 1000, "round_size": 100},
    "context": {"features": {"visits": {"low": 0.0, "high": 20.0}, "premium": {"boolean": True}}},
    "privacy": {"model": "local", "epsilon": 4.0},
    "algorithm": {"name": "trial"},
}
_PEOPLE = {"chromium": 200, "firefox": 20}
"""No two tabs or components of a person may differ; by chance, of four arms, 3 of 4 would."""
_APART = 10
_FOUND = (
    "async () => { while (!globalThis.found) await new Promise((on) => setTimeout(on, 1)); return globalThis.found; }"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Services]]:
    folder = tmp_path_factory.mktemp("packed")
    with serving(folder / "site") as origin:
        location = (tmp_path_factory.mktemp("services"), free_port(), free_port())
        with run_services(*location, quiet=True, origins=origin) as services:
            create_experiment(services.admin, parse_spec(_SPEC), services.token)
            build(folder, services.server)
            yield origin, services


@pytest.fixture(scope="module")
def started_firefox() -> Iterator[Any]:
    with firefox() as firefox_process:
        yield firefox_process


@pytest.fixture(params=list(_PEOPLE))
def browser(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    """A browser's name, and what opens its tabs."""
    if request.param == "chromium":
        context = request.getfixturevalue("chromium").new_context()
        yield "chromium", context.new_page
        context.close()
        return
    firefox_process = request.getfixturevalue("started_firefox")
    if firefox_process is None:
        pytest.skip("Firefox is missing: install it, or name it by PRIVATEER_FIREFOX")
    yield "firefox", firefox_process.new_tab


def test_components_that_react_mounts_twice_show_one_arm(site: tuple[str, Services], browser: tuple[str, Any]) -> None:
    (origin, at), (name, new_tab) = site, browser
    tab = new_tab()
    tab.goto(f"{origin}/mounts.html")
    visits = "([server, from, count, apart]) => visits(server, from, count, apart)"
    summary = tab.evaluate(visits, [at.server, 0, _PEOPLE[name], False])
    assert summary["people"] == {"1": _PEOPLE[name]}
    assert summary["waits"] > 0  # the first renders had the default
    assert summary["reports"] == ["accepted", "already-reported"]
    people = tab.evaluate(visits, [at.server, _PEOPLE[name], _APART, True])["people"]
    assert people.get("2", 0) > 0  # all ten are alike once in a million


def test_tabs_that_join_at_once_show_one_arm(site: tuple[str, Services], browser: tuple[str, Any]) -> None:
    (origin, at), (name, new_tab) = site, browser
    tabs = [new_tab(), new_tab()]

    def differ(*people: str) -> bool:
        for tab, person in zip(tabs, people, strict=True):
            tab.goto(f"{origin}/tab.html?person={person}&server={quote(at.server, safe='')}")
        tabs[0].evaluate("() => go()")
        arms = [tab.evaluate(_FOUND) for tab in tabs]
        assert set(arms) <= set(_ARMS)
        return len(set(arms)) > 1

    assert sum(differ(f"{name}-{i}", f"{name}-{i}") for i in range(_PEOPLE[name])) == 0
    assert any(differ(f"{name}-{i}-a", f"{name}-{i}-b") for i in range(_APART))


def test_react_hydrates_a_rendered_page_without_changes(site: tuple[str, Services], browser: tuple[str, Any]) -> None:
    (origin, _), (_, new_tab) = site, browser
    tab = new_tab()
    tab.goto(f"{origin}/hydrated.html")
    wait_for_button = """async () => {
      const button = () => document.querySelector("button");
      while (button().style.visibility === "hidden") await new Promise((on) => setTimeout(on, 1));
      return [served, mended, button().innerText];
    }"""
    running_services, mended, text = tab.evaluate(wait_for_button)
    assert running_services == '<button style="visibility:hidden">Free delivery this week</button>'
    assert mended == []
    assert text in {"Free delivery this week", "5 % off", "A gift with every order", ""}  # the docs name three of four


def test_the_documented_pages_and_plain_modules_work(site: tuple[str, Services], browser: tuple[str, Any]) -> None:
    (origin, at), (_, new_tab) = site, browser
    tab = new_tab()
    tab.goto(f"{origin}/browser.html")
    assert "visibility" in tab.evaluate("() => document.querySelector('button').outerHTML")
    tab.goto(f"{origin}/plain.html?server={quote(at.server, safe='')}")
    assert tab.evaluate(_FOUND) == [[], None, "accepted"]
