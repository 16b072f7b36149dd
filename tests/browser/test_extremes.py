"""Large policies are drawn at once, and whatever a server says is text."""

import json
import re
from typing import Any

import httpx
import pytest

from privateer_lab.services.processes import Services
from tests.browser.conftest import Open, open_all
from tests.support.dashboards import HOSTILE

pytestmark = pytest.mark.browser

_SIDE = 100
_MAX_RATIO = 5
"""Sixteen times as many bins take at most so much longer."""
_DRAWN = """
window.drawn = null;
new MutationObserver(() => {
  if (window.drawn === null && document.querySelector("#map path.arm")) window.drawn = performance.now() - window.came;
}).observe(document, { childList: true, subtree: true });
const { json } = Response.prototype;
Response.prototype.json = async function () {
  const found = await json.call(this);
  if (this.url.endsWith("/policy")) window.came = performance.now();
  return found;
};
"""


def many_bins(side: int) -> list[dict[str, Any]]:
    """Bins of a plane, some with several arms."""
    return [
        {
            "lower": [i / side, j / side],
            "upper": [(i + 1) / side, (j + 1) / side],
            "where": [
                {"kind": "between", "feature": name, "low": k / side, "high": (k + 1) / side, "missing": False}
                for name, k in (("x1", i), ("x2", j))
            ],
            "arms": {"left": 0.6, "right": 0.4} if (i + j) % 3 else {"middle": 1.0},
        }
        for i in range(side)
        for j in range(side)
    ]


def time_to_draw(at: Services, page: Any, bins: list[dict[str, Any]]) -> float:
    """Show a policy with these bins; return the milliseconds from its coming to the map."""
    published = httpx.get(f"{at.server}/experiments/plane/policy").json()
    published["policy"]["shows"]["bins"] = bins
    body = json.dumps(published)
    page.add_init_script(_DRAWN)
    page.route(re.compile("/policy$"), lambda route: route.fulfill(body=body, content_type="application/json"))
    page.goto(f"{at.server}/#/plane")
    page.get_by_role("group", name=f"Map of {len(bins):,} bins over x1 and x2").wait_for()
    page.get_by_text("membership advantage").first.wait_for()
    return float(page.evaluate("window.drawn"))


def test_the_time_to_draw_bins_grows_as_they_do(at: Services, new_page: Open) -> None:
    """Measured 1.2 times; planted, each bin compared with all others, 25 times."""
    few_milliseconds = min(time_to_draw(at, new_page(), many_bins(_SIDE // 4)) for _ in range(2))
    page, bins = new_page(), many_bins(_SIDE)
    many_milliseconds = min(time_to_draw(at, new_page(), bins), time_to_draw(at, page, bins))
    print(f"drawn after {many_milliseconds:.0f} ms, a sixteenth of them after {few_milliseconds:.0f} ms")
    assert many_milliseconds < _MAX_RATIO * few_milliseconds
    shapes = page.locator("#map path.arm").evaluate_all(
        "all => all.map(one => one.getAttribute('d').split('z').length - 1)"
    )
    assert sum(shapes) == len(bins)
    page.get_by_text("The 10,000 bins of the policy as a table").click()
    page.locator("#bins").wait_for()
    assert page.locator("#bins tbody tr").count() == 25
    page.locator("#bins-later").click()
    assert "26 to 50 of 10,000 rows" in page.locator("#policy .pages").inner_text()


def spoil(value: Any, safe: str) -> Any:
    """Every text of a document but those of a key, and every key that the page does not know, made hostile."""
    if isinstance(value, dict):
        return {
            key if key.islower() and key.isidentifier() else HOSTILE + key: item if key == safe else spoil(item, safe)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [spoil(item, safe) for item in value]
    return HOSTILE + value if isinstance(value, str) else value


@pytest.mark.parametrize("safe", ["kind", ""], ids=["known kinds", "unknown kinds"])
@pytest.mark.parametrize("name", ["plane", "shop", "phases", "numbers"])
def test_texts_of_a_hostile_server_stay_texts(at: Services, new_page: Open, name: str, safe: str) -> None:
    page = new_page(360)

    def spoil_response(route: Any) -> None:
        answer = route.fetch()
        if answer.status != 200:
            route.fulfill(response=answer)
            return
        route.fulfill(status=200, content_type="application/json", body=json.dumps(spoil(answer.json(), safe)))

    page.route("**/experiments**", spoil_response)
    page.goto(f"{at.server}/#/{name}")
    page.get_by_role("heading", name="History").wait_for()
    open_all(page)
    assert HOSTILE in page.locator("main").inner_text()
    assert (page.get_by_text("This page does not know how to draw").count() > 0) == (not safe)
    assert page.locator("main img, main script, main iframe").count() == 0
    assert page.evaluate("window.hurt") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_browser_itself_refuses_html_and_inline_scripts(at: Services, new_page: Open, chromium: Any) -> None:
    """A planted defect: if a module ever takes text for HTML, the policy of the page stops it."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(at.server)
    page.locator(".card").first.wait_for()
    refused = page.evaluate(
        "text => { try { document.body.innerHTML = text; return false; } catch (error) { return error.name; } }",
        HOSTILE,
    )
    assert refused == "TypeError"
    refused = page.evaluate(
        "() => { try { document.body.setAttribute('onclick', 'window.hurt = 1'); return false; }"
        " catch (error) { return error.name; } }"
    )
    assert refused == "TypeError"
    assert page.evaluate("window.hurt") is None
    context.close()
