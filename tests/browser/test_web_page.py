"""The page of docs/web.md in Chromium, as it stands there: at its own origin, under its own content policy."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_lab.services.rest import create_experiment

pytestmark = pytest.mark.browser

_PAGE = Path("docs/web.md").read_text()
_SDK = Path("sdk/js/src")
_SHOP, _LEARN = "https://shop.example", "https://learn.example"
_TOLD = {"accept", "content-type", "if-none-match", "origin", "access-control-request-method"}
_SPEC = {
    "experiment": {"name": "offers", "arms": ["delivery", "discount", "gift"], "horizon": 1000, "round_size": 100},
    "context": {"features": {"visits": {"low": 0.0, "high": 20.0}, "premium": {"boolean": True}}},
    "privacy": {"model": "local", "epsilon": 4.0},
    "algorithm": {"name": "partition"},
}


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", _PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    [origins] = re.findall(r'PRIVATEER_CORS_ORIGINS="(.*)"', "".join(_blocks("sh")))
    assert origins.split()[0] == _SHOP
    location = (tmp_path_factory.mktemp("services"), free_port(), free_port())
    with run_services(*location, quiet=True, origins=origins) as services:
        create_experiment(services.admin, parse_spec(_SPEC), services.token)
        yield services


def _serve(services: Services, script: str) -> Callable[[Any], None]:
    """What answers at the page's origin and at the server's: the documented files, and the service of this machine."""
    [policy] = [line.partition(": ")[2] for line in _blocks("text")[0].splitlines()]
    files = {"/": ("text/html", _blocks("html")[0]), "/offers.js": ("text/javascript", script)}

    def answer_request(route: Any) -> None:
        url = route.request.url
        if url.startswith(_LEARN):
            request = route.request
            headers = {name: text for name, text in request.headers.items() if name in _TOLD}
            response = httpx.request(
                request.method,
                services.server + url.removeprefix(_LEARN),
                headers=headers,
                content=request.post_data_buffer,
            )
            route.fulfill(status=response.status_code, headers=dict(response.headers), body=response.content)
            return
        path = url.removeprefix(_SHOP)
        if path.startswith("/privateer/"):
            kind, body = "text/javascript", (_SDK / path.removeprefix("/privateer/")).read_text()
        else:
            kind, body = files.get(path, ("text/plain", ""))
        route.fulfill(body=body, content_type=f"{kind}; charset=utf-8", headers={"Content-Security-Policy": policy})

    return answer_request


def _wait_for_value(page: Any, expression: str, expected: Any) -> None:
    """Wait for a value; the page's policy forbids Playwright's own way, which makes code of text."""
    deadline = time.monotonic() + 60
    while (value := page.evaluate(f"() => {expression}")) != expected:
        assert time.monotonic() < deadline, value
        time.sleep(0.05)


def test_the_documented_page_reports(at: Services, chromium: Any) -> None:
    script, _ = _blocks("js")
    context = chromium.new_context()
    page, wrong, origins = context.new_page(), list[str](), set[str]()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: origins.add("/".join(request.url.split("/")[:3])))
    context.route("**/*", _serve(at, script))
    page.goto(f"{_SHOP}/")
    page.wait_for_load_state("networkidle")
    assert page.locator("#offer").inner_text() in ("Free delivery this week", "5 % off", "A gift with every order")
    page.click("#take")
    deadline = time.monotonic() + 60
    while (facts := httpx.get(f"{at.server}/experiments/offers").json())["accepted"] < 1:
        assert time.monotonic() < deadline, (facts, wrong)
        page.wait_for_timeout(50)  # what answers the page runs meanwhile
    context.close()
    assert wrong == []
    assert origins == {_SHOP, _LEARN}


def test_a_page_may_set_the_limits_of_its_ledger(at: Services, chromium: Any) -> None:
    _, script = _blocks("js")
    context = chromium.new_context()
    page, wrong = context.new_page(), list[str]()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    context.route(
        "**/*",
        _serve(at, script + "\nawait client.join('offers').catch((error) => { globalThis.refused = error.field; });"),
    )
    page.goto(f"{_SHOP}/")
    # This client allows an epsilon of 1, and the experiment costs 4.
    _wait_for_value(page, "globalThis.refused", "epsilon")
    context.close()
    assert wrong == []


def test_without_the_server_the_page_stays_as_it_was_served(at: Services, chromium: Any) -> None:
    script, _ = _blocks("js")
    context = chromium.new_context()
    page, messages = context.new_page(), list[str]()
    page.on("console", lambda message: messages.append(message.text))
    context.route("**/*", _serve(at, script))
    context.route(f"{_LEARN}/**", lambda route: route.abort())
    page.goto(f"{_SHOP}/")
    _wait_for_value(page, "performance.getEntriesByType('resource').length > 20", True)
    page.wait_for_load_state("networkidle")
    assert page.locator("#offer").inner_text() == "Free delivery this week"
    assert any("the default is shown" in message and "nothing listens" in message for message in messages)
    context.close()
