"""Ten loads of a page: one arm. What the browser keeps of a choice, and what becomes of it after the report."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_lab.services.rest import create_experiment

pytestmark = pytest.mark.browser

_SDK = Path("sdk/js/src")
_SHOP, _LEARN = "https://shop.example", "https://learn.example"
_TOLD = {"accept", "content-type", "if-none-match", "origin", "access-control-request-method"}
_ARMS = ["delivery", "discount", "gift", "nothing"]
_SPEC = {
    "experiment": {"name": "offers", "arms": _ARMS, "horizon": 1000, "round_size": 100},
    "context": {"features": {"visits": {"low": 0.0, "high": 20.0}, "premium": {"boolean": True}}},
    "privacy": {"model": "local", "epsilon": 4.0},
    "algorithm": {"name": "trial"},
    "segments": {"features": ["premium"]},
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Offers</title>
<script type="module" src="/offers.js"></script></html>"""
_SCRIPT = """
import { Client, IndexedDbLedger } from "/privateer/index.js";
import { PrivateerWebProvider } from "/privateer/openfeature.js";
const asked = new URL(location).searchParams;
const context = { visits: Number(asked.get("visits")), premium: asked.get("visits") % 2 === 1 };
globalThis.ledger = new IndexedDbLedger();
globalThis.client = new Client("https://learn.example", { limits: { epsilon: 4 }, ledger });
globalThis.outcomes = [];
const reported = (_, outcome) => outcomes.push(outcome.type ?? outcome);
globalThis.provider = new PrivateerWebProvider(client, { experiments: ["offers"], reported, within: 10 });
await provider.initialize();
const found = provider.resolveStringEvaluation("offers", "default", context);
await provider.onClose(); // the choice is kept
globalThis.arm = found.errorMessage ?? found.value;
"""
_STORED = """() => new Promise((resolve) => {
  const opening = indexedDB.open("privateer");
  opening.onsuccess = () => {
    const all = opening.result.transaction("entries").objectStore("entries");
    all.getAllKeys().onsuccess = ({ target }) => {
      const names = target.result;
      all.getAll().onsuccess = (event) => {
        const rows = Object.fromEntries(names.map((name, i) => [name, event.target.result[i]]));
        const choice = rows["https://learn.example/offers"].choice;
        const key = rows["#key"];
        const taken = key ? crypto.subtle.exportKey("raw", key).then(() => "taken", (error) => error.name) : null;
        Promise.resolve(taken).then((taken) => {
          opening.result.close();
          resolve({ bytes: choice instanceof Uint8Array, none: choice === null, taken });
        });
      };
    };
  };
})"""


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    location = (tmp_path_factory.mktemp("services"), free_port(), free_port())
    with run_services(*location, quiet=True, origins=_SHOP) as services:
        create_experiment(services.admin, parse_spec(_SPEC), services.token)
        yield services


@pytest.fixture
def page(at: Services, chromium: Any) -> Iterator[Any]:
    """A page of the shop in a browser that has not been there; all its errors are failures."""
    context, wrong = chromium.new_context(), list[str]()

    def answer_request(route: Any) -> None:
        request = route.request
        if request.url.startswith(_LEARN):
            headers = {name: text for name, text in request.headers.items() if name in _TOLD}
            url = at.server + request.url.removeprefix(_LEARN)
            response = httpx.request(request.method, url, headers=headers, content=request.post_data_buffer)
            route.fulfill(status=response.status_code, headers=dict(response.headers), body=response.content)
            return
        path = request.url.removeprefix(_SHOP).partition("?")[0]
        kind = "text/html" if path == "/" else "text/javascript"
        body = {"/": _PAGE, "/offers.js": _SCRIPT}.get(path)
        if body is None:
            body = (_SDK / path.removeprefix("/privateer/")).read_text() if path.startswith("/privateer/") else ""
        route.fulfill(body=body, content_type=f"{kind}; charset=utf-8")

    context.route("**/*", answer_request)
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    context.close()
    assert wrong == []


def _loaded(page: Any, visits: int) -> str:
    page.goto(f"{_SHOP}/?visits={visits}")
    deadline = time.monotonic() + 60
    while (arm := page.evaluate("() => globalThis.arm ?? ''")) == "":
        assert time.monotonic() < deadline
        page.wait_for_timeout(20)
    return str(arm)


def test_ten_loads_of_a_page_give_one_arm_until_its_report(at: Services, page: Any) -> None:
    """Whatever the context of each load. By chance ten arms of four are the same with probability 4^-9."""
    arms = [_loaded(page, visits) for visits in range(10)]
    print(f"ten loads, arms: {', '.join(arms)}")
    assert len(set(arms)) == 1
    assert arms[0] in _ARMS
    # The database has the choice encrypted, by a key that no script can take out of the browser.
    assert page.evaluate(_STORED) == {"bytes": True, "none": False, "taken": "InvalidAccessError"}
    before = httpx.get(f"{at.server}/experiments/offers").json()["accepted"]
    page.evaluate("() => { provider.track('offers', {}, { value: 1 }); return provider.onClose(); }")
    assert page.evaluate("() => outcomes") == ["accepted"]
    assert httpx.get(f"{at.server}/experiments/offers").json()["accepted"] == before + 1
    # The page that has reported shows what it did; the browser has nothing of the choice.
    assert page.evaluate("() => provider.resolveStringEvaluation('offers', 'default', {}).value") == arms[0]
    assert page.evaluate(_STORED)["none"] is True
    assert not page.evaluate("() => client.join('offers').then((session) => session.reportRequested)")
    after = [_loaded(page, visits) for visits in range(6)]
    assert set(after) <= set(_ARMS)
    assert page.evaluate(_STORED)["none"] is True


def test_a_page_gets_a_new_arm_only_if_it_asks_for_one(page: Any) -> None:
    _loaded(page, 1)
    context, join = "{ visits: 1, premium: true }", "client.join('offers')"
    fresh = f"() => {join}.then((session) => session.choose({context}, {{ fresh: true }}))"
    arms = [page.evaluate(fresh) for _ in range(30)]
    assert len(set(arms)) > 1  # all alike by chance: 4^-29
    page.wait_for_timeout(200)
    choose_again = "() => client.join('offers').then((session) => session.choose({ visits: 9, premium: false }))"
    assert {page.evaluate(choose_again) for _ in range(5)} == {arms[-1]}


def test_two_tabs_share_the_arm(page: Any) -> None:
    first = _loaded(page, 3)
    other = page.context.new_page()
    assert _loaded(other, 4) == first
    assert re.fullmatch("|".join(_ARMS), first)
