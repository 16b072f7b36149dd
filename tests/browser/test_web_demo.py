"""The page of ``privateer demo --web`` in Chromium: every visitor is a device, which reports once, whatever happens."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_lab.services.demo import DemoPage, find_sdk_folder, serve_page, serve_web_demo
from privateer_lab.services.processes import Services, free_port

pytestmark = pytest.mark.browser

LOAD_MAX = 360_000
_JOIN = """async ([server, name]) => {
  const { Client, IndexedDbLedger } = await import("./sdk/index.js");
  globalThis.ledger = new IndexedDbLedger(name);
  globalThis.client = new Client(server, { ledger, limits: { epsilon: 4 }, retryTimeout: 0 });
  globalThis.session = await client.join("places");
  session.choose({ mood: 0.3 });
}"""
_REPORT = "() => session.report(1).then((outcome) => outcome, (error) => error.type)"
_NO_STORAGE = "Object.defineProperty(globalThis, 'indexedDB', { value: undefined })"
_NO_CURVE = """const made = crypto.subtle.generateKey.bind(crypto.subtle);
SubtleCrypto.prototype.generateKey = (kind, ...more) =>
  kind.name === "X25519" ? Promise.reject(new DOMException("", "NotSupportedError")) : made(kind, ...more)"""
_FULL = "() => { IDBObjectStore.prototype.put = () => { throw new DOMException('', 'QuotaExceededError'); }; }"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Services]]:
    with serve_web_demo(tmp_path_factory.mktemp("demo")) as running_demo:
        yield running_demo


def _n_accepted(at: Services) -> int:
    return int(httpx.get(f"{at.server}/experiments/places").json()["accepted"])


def _wait_for_accepted(at: Services, expected: int) -> None:
    deadline = time.monotonic() + 60
    while _n_accepted(at) != expected:
        assert time.monotonic() < deadline, _n_accepted(at)
        time.sleep(0.05)


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_a_visitor_reports_once_and_is_counted(demo, new_page, width, scheme):
    url, at = demo
    before, page, sizes, bodies = _n_accepted(at), new_page(width, scheme), list[int](), list[bytes]()
    page.on("response", lambda answer: sizes.append(len(answer.body())) if answer.status == 200 else None)
    page.on("request", lambda request: bodies.append(request.post_data_buffer) if request.method == "POST" else None)
    page.goto(url)
    page.locator("#choose:enabled").wait_for()
    page.wait_for_load_state("networkidle")
    assert sum(sizes) <= LOAD_MAX, f"the first load has {sum(sizes)} bytes"
    page.click("#choose")
    assert page.locator("#place").inner_text() in ("Lake", "Forest", "Market")
    page.click("#like")
    page.get_by_text("Your report is counted").wait_for()
    _wait_for_accepted(at, before + 1)
    # What left is one sealed report, of the size that the page shows.
    [body] = bodies
    assert f"{len(body)}" in page.locator("#requests").inner_text()
    assert body.hex() == page.locator("#bytes").text_content()
    page.reload()
    page.get_by_text("never does so twice").wait_for()
    page.click("#choose")
    assert not page.locator("#like").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # Somebody else has a ledger of their own.
    page.click("#other")
    page.locator("#choose:enabled").wait_for()
    page.click("#choose")
    page.click("#dislike")
    page.get_by_text("Your report is counted").wait_for()
    _wait_for_accepted(at, before + 2)


def test_the_policy_follows_what_people_report(demo: tuple[str, Services], new_page: Callable[..., Any]) -> None:
    url, at = demo
    before, page = _n_accepted(at), new_page()
    page.goto(url)
    page.locator("#policy svg").first.wait_for()
    page.click("#crowd")
    page.get_by_text("50 of 50 have reported").wait_for()
    page.locator("#crowd:enabled").wait_for()
    # A report that comes between two rounds is late, and does not count.
    assert before + 45 <= _n_accepted(at) <= before + 50
    assert int(page.locator("#count").inner_text()) > before
    assert page.locator("#policy tbody tr").count() >= 1


def test_everybody_can_use_the_page(demo: tuple[str, Services], chromium: Any) -> None:
    """Without the content policy, as axe-core is put into the page; the same in both schemes."""
    from axe_playwright_python.sync_playwright import Axe

    for scheme in ("light", "dark"):
        context = chromium.new_context(color_scheme=scheme, bypass_csp=True)
        page = context.new_page()
        page.goto(demo[0])
        page.locator("#choose:enabled").wait_for()
        page.click("#choose")
        page.locator("#policy svg").first.wait_for()
        violations = Axe().run(page).response["violations"]
        context.close()
        assert [(each["id"], each["impact"]) for each in violations if each["impact"] in ("serious", "critical")] == []


def test_two_tabs_at_once_report_once(demo: tuple[str, Services], chromium: Any) -> None:
    """Both tabs have joined and chosen before either pays, and the database admits a single payment."""
    url, at = demo
    before, context = _n_accepted(at), chromium.new_context()
    for number in range(5):
        tabs = [context.new_page() for _ in range(2)]
        for tab in tabs:
            tab.goto(f"{url}demo.json")
            tab.evaluate(_JOIN, [at.server, f"tabs-{number}"])
        report = "() => { globalThis.done = session.report(1).then((outcome) => outcome, (error) => error.type); }"
        for tab in tabs:
            tab.evaluate(report)
        statuses = sorted(tab.evaluate("() => globalThis.done") for tab in tabs)
        assert statuses == ["accepted", "already-reported"]
    context.close()
    _wait_for_accepted(at, before + 5)


def test_a_pending_report_survives_the_page(demo: tuple[str, Services], chromium: Any) -> None:
    """A server gone mid-way: the sealed report waits in the browser, and the same bytes are sent at the next visit."""
    url, at = demo
    before, context = _n_accepted(at), chromium.new_context()
    page = context.new_page()
    page.goto(f"{url}demo.json")
    page.evaluate(_JOIN, [at.server, "survives"])
    bodies: list[bytes] = []
    context.route("**/reports", lambda route: (bodies.append(route.request.post_data_buffer), route.abort()))
    assert page.evaluate(_REPORT) == "pending"
    page.close()
    context.unroute_all()
    page = context.new_page()
    page.on("request", lambda request: bodies.append(request.post_data_buffer) if request.method == "POST" else None)
    page.goto(f"{url}demo.json")
    page.evaluate(_JOIN, [at.server, "survives"])
    _wait_for_accepted(at, before + 1)
    assert len(bodies) == 2
    assert len(set(bodies)) == 1
    assert page.evaluate("session.reportRequested") is False
    assert page.evaluate(_REPORT) == "already-reported"
    context.close()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (_NO_STORAGE, "no IndexedDB here"),
        (_NO_CURVE, "X25519 in WebCrypto"),
        ("delete Crypto.prototype.subtle", "serve the page over https"),
    ],
)
def test_a_browser_that_lacks_something_says_so_and_shows_the_rest(demo, chromium, script, words):
    before, context = _n_accepted(demo[1]), chromium.new_context()
    context.add_init_script(script)
    page = context.new_page()
    page.goto(demo[0])
    page.locator("#trouble").get_by_text(words).wait_for()
    assert "You can still see below" in page.locator("#trouble").inner_text()
    page.locator("#policy svg").first.wait_for()
    assert page.locator("#choose").is_disabled()
    assert _n_accepted(demo[1]) == before
    context.close()


def test_a_full_disk_means_no_report(demo: tuple[str, Services], chromium: Any) -> None:
    before, context = _n_accepted(demo[1]), chromium.new_context()
    page, posted_urls = context.new_page(), list[str]()
    page.on("request", lambda request: posted_urls.append(request.url) if request.method == "POST" else None)
    page.goto(demo[0])
    page.locator("#choose:enabled").wait_for()
    page.evaluate(_FULL)
    page.click("#choose")
    page.click("#like")
    page.locator("#trouble").get_by_text("Nothing was paid or sent").wait_for()
    assert posted_urls == []
    assert _n_accepted(demo[1]) == before
    context.close()


def test_a_page_of_another_origin_gets_no_answer_and_says_why(demo: tuple[str, Services], chromium: Any) -> None:
    _, at = demo
    port, context = free_port(), chromium.new_context()
    with serve_page(DemoPage(find_sdk_folder(), at.server, at.shuffler, "places"), port):
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{port}/")
        page.locator("#trouble").get_by_text("PRIVATEER_CORS_ORIGINS").wait_for()
        context.close()


def test_without_the_sdk_beside_it_the_demo_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from privateer_core.errors import SpecError
    from privateer_lab.services import demo

    monkeypatch.setattr(demo, "_SDK_FOLDER", tmp_path)
    with pytest.raises(SpecError, match="clone the repository"):
        find_sdk_folder()
