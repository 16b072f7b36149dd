"""Operators change experiments on the private listener's page, with a token that the page forgets."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from privateer_lab.services.processes import Services
from tests.browser.conftest import Open, begin, running_services
from tests.browser.test_views import show
from tests.support.dashboards import EXPERIMENTS

pytestmark = pytest.mark.browser

FIRST_LOAD_MAX = 300_000
SPEC = """\
[experiment]
name = "made-here"
arms = ["a", "b"]
horizon = 400
round_size = 100

[privacy]
model = "local"
epsilon = 20.0

[algorithm]
name = "bandit"
"""


@pytest.fixture
def own_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Services of one test, with an experiment that has just begun."""
    with running_services(tmp_path_factory.mktemp("own")) as services:
        begin(services, EXPERIMENTS["begun"])
        yield services


def open_private(page: Any, at: Services, address: str = "#/begun/change") -> Any:
    """Open an address at the private listener."""
    page.goto(f"{at.admin}/{address}")
    page.get_by_label("Admin token").wait_for()
    return page


def type_token(page: Any, token: str) -> None:
    page.get_by_label("Admin token").fill(token)
    page.get_by_role("button", name="Use it").click()
    page.get_by_text("A token is kept in the memory of this page.").wait_for()


def status_of(at: Services, name: str = "begun") -> str:
    return str(httpx.get(f"{at.server}/experiments/{name}").json().get("status", "gone"))


def test_a_spec_is_created_with_errors_beside_their_lines(own_services: Services, new_page: Open) -> None:
    from playwright.sync_api import expect

    page = new_page()
    page.goto(own_services.admin)
    page.get_by_role("link", name="Create an experiment").click()
    text = page.get_by_label("Spec, as TOML")
    expect(text).to_have_value(re.compile(r"^\[experiment\]", re.MULTILINE))
    text.fill(SPEC)
    page.get_by_role("button", name="Create it").click()
    page.get_by_text("Type the token first.").wait_for()
    type_token(page, "wrong")
    page.get_by_role("button", name="Create it").click()
    page.get_by_text("The token is wrong, or missing. Nothing was changed").wait_for()
    assert text.input_value() == SPEC
    type_token(page, own_services.token)
    page.get_by_role("button", name="Create it").click()
    page.get_by_text("Line 9. privacy.epsilon: must be less than or equal to 16").wait_for()
    assert page.locator(".numbers .at-fault").inner_text() == "9"
    message_box = page.locator(".beside-line").bounding_box()
    mark_box = page.locator(".numbers .at-fault").bounding_box()
    assert abs(message_box["y"] - mark_box["y"]) < 4
    chosen = "(one => one.value.slice(one.selectionStart, one.selectionEnd))(document.getElementById('spec-text'))"
    assert page.evaluate(chosen) == "epsilon = 20.0"
    assert text.get_attribute("aria-invalid") == "true"
    text.fill(SPEC.replace("20.0", "= 4"))
    page.get_by_role("button", name="Create it").click()
    page.get_by_text(re.compile("^Line 9. spec: not TOML")).wait_for()
    text.fill(SPEC.replace("20.0", "4.0"))
    page.get_by_role("button", name="Create it").click()
    page.get_by_role("heading", name="made-here").wait_for()
    assert status_of(own_services, "made-here") == "open"


def test_pause_and_resume_state_their_consequences(own_services: Services, new_page: Open) -> None:
    page = open_private(new_page(), own_services)
    page.get_by_role("button", name="Pause", exact=True).click()
    page.locator("#action-title:focus").wait_for()
    form = page.locator("form.action")
    text = form.inner_text()
    for words in ("Who has chosen, and not reported", "What was learned", "The promise to a person", "nothing is paid"):
        assert words in text
    page.locator("#send-pause").click()
    page.get_by_text("Type the token first.").wait_for()
    assert form.is_visible()
    type_token(page, own_services.token)
    page.locator("#send-pause").click()
    page.get_by_text("begun is paused.").wait_for()
    assert status_of(own_services) == "paused"
    page.get_by_role("button", name="Resume").click()
    page.locator("#send-resume").click()
    page.get_by_text("begun asks people again.").wait_for()
    assert status_of(own_services) == "open"
    page.get_by_role("button", name="Show what was changed").click()
    rows = page.locator("#log tbody tr").all_inner_texts()
    assert [row.split("\t")[1] for row in rows] == ["resume", "pause", "create"]


def test_stop_and_delete_require_the_name(own_services: Services, new_page: Open) -> None:
    page = open_private(new_page(), own_services)
    type_token(page, own_services.token)
    page.get_by_role("button", name="Stop").click()
    for typed in ("", "Begun", "begu"):
        page.get_by_label("Type begun to confirm").fill(typed)
        page.locator("#send-stop").click()
        page.get_by_text("This cannot be undone: type begun here to confirm.").wait_for()
    assert status_of(own_services) == "open"
    page.get_by_label("Type begun to confirm").fill("begun")
    page.locator("#send-stop").click()
    page.get_by_text("begun is stopped.").wait_for()
    assert status_of(own_services) == "stopped"
    page.get_by_role("button", name="Pause").wait_for(state="detached")
    page.get_by_role("button", name="Delete").click()
    page.get_by_label("Type begun to confirm").fill("begun")
    page.locator("#send-delete").click()
    page.get_by_text("It was deleted, and its name is never used again.").wait_for()


def test_abandoning_a_round_requires_the_name(own_services: Services, new_page: Open) -> None:
    page = open_private(new_page(), own_services)
    page.get_by_role("button", name="Pause", exact=True).click()
    assert not page.get_by_label("Type begun to confirm").is_visible()
    page.get_by_label("Seconds that the open round still has").fill("0")
    assert page.get_by_label("Type begun to confirm").is_visible()
    page.locator("#send-pause").click()
    page.get_by_text(
        "The round that is open may be given up, with what came in it: type begun here to confirm."
    ).wait_for()
    page.get_by_label("Seconds that the open round still has").fill("-5")
    assert not page.get_by_label("Type begun to confirm").is_visible()
    page.locator("#send-pause").click()
    page.get_by_text("This must be 0 or more.").wait_for()
    assert status_of(own_services) == "open"


def test_an_operator_extends_clones_and_changes_arms(own_services: Services, new_page: Open) -> None:
    page = open_private(new_page(), own_services)
    type_token(page, own_services.token)
    page.get_by_role("button", name="Extend").click()
    page.locator("#send-extend").click()
    page.get_by_text("This is needed.").wait_for()
    page.get_by_label("New horizon").fill("10")
    page.locator("#send-extend").click()
    page.locator("#f-extend-horizon-error", has_text="experiment.horizon").wait_for()
    assert page.get_by_label("New horizon").get_attribute("aria-invalid") == "true"
    page.get_by_label("New horizon").fill("3000")
    page.locator("#send-extend").click()
    page.get_by_text(
        "begun asks more people. It holds from the next version on, when the open round is over."
    ).wait_for()
    page.get_by_role("button", name="Add an arm").click()
    page.get_by_label("Name of the new arm").fill("c")
    page.locator("#send-add-arm").click()
    page.get_by_text("begun tries that arm from the next version on.").wait_for()
    page.get_by_role("button", name="Retire an arm").click()
    assert page.get_by_label("Arm", exact=True).locator("option").all_inner_texts() == ["a", "b"]
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "do-retire-arm"
    page.get_by_role("button", name="Clone").click()
    page.get_by_label("Name of the new experiment").fill("begun-too")
    page.locator("#send-clone").click()
    page.get_by_role("link", name="Open it").click()
    page.get_by_role("heading", name="begun-too", level=1).wait_for()


def test_a_change_can_be_sent_again_to_a_restarted_server(own_services: Services, new_page: Open) -> None:
    page = open_private(new_page(), own_services)
    type_token(page, own_services.token)
    page.get_by_role("button", name="Extend").click()
    page.get_by_label("New horizon").fill("3000")
    own_services.processes.kill("server")
    page.locator("#send-extend").click()
    page.get_by_text("The server did not answer, so it is not known whether it was done. Send it again").wait_for()
    page.get_by_text(re.compile("^The server does not answer")).wait_for()
    assert page.get_by_label("New horizon").input_value() == "3000"
    own_services.processes.start("server")
    own_services.processes.wait("server")
    page.locator("#send-extend").click()
    page.get_by_text("begun asks more people.").wait_for()


def test_a_form_stays_while_the_experiment_goes_on(own_services: Services, new_page: Open) -> None:
    page = open_private(new_page(), own_services)
    page.get_by_role("button", name="Extend").click()
    page.get_by_label("New horizon").fill("30")
    admin = {"authorization": f"Bearer {own_services.token}"}
    assert httpx.post(f"{own_services.admin}/experiments/begun/pause", headers=admin).status_code == 200
    page.get_by_role("button", name="Resume").wait_for()
    assert page.get_by_label("New horizon").input_value() == "30"
    assert page.evaluate("document.activeElement.id") == "f-extend-horizon"


def test_the_token_is_forgotten_with_the_page(own_services: Services, new_page: Open) -> None:
    page = open_private(new_page(), own_services)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(f"{request.url} {request.headers} {request.post_data}"))
    type_token(page, own_services.token)
    page.get_by_role("button", name="Pause", exact=True).click()
    page.locator("#send-pause").click()
    page.get_by_text("begun is paused.").wait_for()
    assert sum(own_services.token in each for each in requests) == 1
    stored = page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href,"
        " document.body.innerHTML, [...document.querySelectorAll('input')].map(one => one.value)])"
    )
    assert own_services.token not in stored
    page.reload()
    page.get_by_label("Admin token").wait_for()
    type_token(page, own_services.token)
    page.get_by_role("button", name="Forget it").click()
    page.get_by_label("Admin token").wait_for()
    assert page.get_by_label("Admin token").input_value() == ""


def test_the_public_page_changes_nothing_even_with_the_token(own_services: Services, new_page: Open) -> None:
    """It has no form and no file of one; and whoever has the token gets nowhere from there."""
    page = show(new_page(), own_services, "begun")
    assert page.locator("main form, main input[type=password], #forms, #create").count() == 0
    page.goto(f"{own_services.server}/#new")
    page.reload()
    page.get_by_text("This server has no such experiment.").wait_for()
    assert page.locator("main form").count() == 0
    script = """async (token) => {
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
      const stopped = await fetch("experiments/begun/stop", { method: "POST", headers, body: "{}" });
      return [stopped.status, (await fetch("dashboard/operator/forms.mjs")).status,
        await import("./dashboard/operator/forms.mjs").then(() => "there", () => "not there")];
    }"""
    assert page.evaluate(script, own_services.token) == [404, 404, "not there"]
    assert status_of(own_services) == "open"


def test_no_other_page_can_use_the_private_listener(own_services: Services, chromium: Any) -> None:
    """A page of another origin in the same browser, with the token of an operator in the tab beside."""
    context = chromium.new_context()
    operator, other = context.new_page(), context.new_page()
    type_token(open_private(operator, own_services), own_services.token)
    other.goto(f"{own_services.shuffler}/keys")  # another origin, without a policy of its own
    script = """async (admin) => {
      const bearing = { mode: "cors", headers: { authorization: "Bearer x" } };
      const ways = [{ mode: "cors" }, { mode: "no-cors" }, { mode: "cors", credentials: "include" }, bearing];
      const stop = (how) => fetch(`${admin}/experiments/begun/stop`, { method: "POST", ...how });
      return Promise.all(ways.map((how) => stop(how).then((one) => one.type, () => "refused")));
    }"""
    assert other.evaluate(script, own_services.admin) == ["refused", "opaque", "refused", "refused"]
    assert status_of(own_services) == "open"
    context.close()


def test_batches_and_the_age_of_the_round(at: Services, new_page: Open) -> None:
    public = show(new_page(), at, "parcels")
    text = public.locator("#reports").inner_text()
    assert "Rounds delivered\n2" in text
    assert "Smallest and largest\n200 and 200 people" in text
    assert "tells nobody here how many reports it holds" in text
    assert "takes reports since" not in text
    page = new_page()
    page.goto(f"{at.admin}/#/parcels")
    page.get_by_text(
        re.compile("The open round takes reports since .*: nothing that the shuffler holds for it is older")
    ).wait_for()


@pytest.mark.parametrize("listener", ["server", "admin"])
def test_the_first_load_is_small(at: Services, new_page: Open, listener: str) -> None:
    page, sizes = new_page(), list[int]()
    page.on("response", lambda response: sizes.append(len(response.body())) if "/dashboard/" in response.url else None)
    page.goto(getattr(at, listener))
    page.locator(".card").first.wait_for()
    assert len(sizes) > 20
    print(f"{listener}: {sum(sizes):,} bytes")
    assert sum(sizes) <= FIRST_LOAD_MAX


ADDRESSES = ["", "#new", "#/plane", "#/plane/change", "#/parcels/change"]


def open_view(page: Any, at: Services, address: str) -> Any:
    """A private view with something wrong in it, or a form open."""
    if not address:
        page.goto(at.admin)
        page.locator(".card").first.wait_for()
    elif address == "#new":
        open_private(page, at, address)
        type_token(page, at.token)
        page.get_by_label("Spec, as TOML").fill(SPEC)
        page.get_by_role("button", name="Create it").click()
        page.locator("#spec-wrong strong").wait_for()
    elif not address.endswith("/change"):
        page.goto(f"{at.admin}/{address}")
        page.get_by_role("heading", name="History").wait_for()
    else:
        open_private(page, at, address)
        page.get_by_role("button", name="Stop").click()
        page.locator("#send-stop").click()
        page.get_by_text("This cannot be undone").wait_for()
    return page


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_nothing_is_wider_than_the_window(at: Services, new_page: Open, address: str, width: int) -> None:
    page = open_view(new_page(width), at, address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(at: Services, new_page: Open, address: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = open_view(new_page(900, scheme), at, address)
    violations = Axe().run(page).response["violations"]
    assert [violation for violation in violations if violation["impact"] in ("serious", "critical")] == []
