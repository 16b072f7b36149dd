"""Reviews and reports in a browser: accessible, within every width, and without requests."""

from pathlib import Path
from typing import Any

import pytest

from privateer_lab.audit.case import AuditFinding
from privateer_lab.cli.ask import write_report
from privateer_lab.pages.review.document import make_review, render_html
from privateer_lab.pages.review.evidence import AuditEvidence
from privateer_lab.pages.review.subject import Facts
from privateer_lab.pages.review.subject import read_running as subject_of
from privateer_lab.services.processes import Services
from tests.support.dashboards import EXPERIMENTS

pytestmark = pytest.mark.browser
_ATTACK = AuditFinding("bits", "SignedSymbol", "local", "tight", 1.0, 0.0, 0.9, 0.9999, 1000, "holds")
_EVIDENCE = AuditEvidence(
    "a test", "0.1.0", "2026-11-20T10:00:00+00:00", 1e-4, ("SignedSymbol",), (), (_ATTACK,) * 30, 0
)


@pytest.fixture(scope="module")
def pages(at: Services, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A report and a review of every experiment."""
    folder, paths = tmp_path_factory.mktemp("pages"), []
    for name in EXPERIMENTS:
        paths += [folder / f"{name}-report.html", folder / f"{name}-review.html"]
        write_report(name, at.server, paths[-2])
        paths[-1].write_text(render_html(make_review(subject_of(name, at.server), _EVIDENCE, Facts())))
    return paths


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(pages: list[Path], chromium: Any, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = chromium.new_page(color_scheme=scheme, viewport={"width": 1280, "height": 900}, bypass_csp=True)
    for path in pages:
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        violations = Axe().run(page).response["violations"]
        assert not [each["id"] for each in violations if each["impact"] in ("serious", "critical")], path.name
    page.close()


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_nothing_is_wider_than_the_screen_and_nothing_is_fetched(pages: list[Path], chromium: Any, width: int) -> None:
    page, requested_urls = chromium.new_page(viewport={"width": width, "height": 900}), []
    page.on("request", lambda request: requested_urls.append(request.url))
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    for path in pages:
        page.goto(path.as_uri())
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over == 0, path.name
        assert page.locator("img").evaluate_all("all => all.every(one => one.naturalWidth > 0)")
    assert all(url.startswith(("file:", "data:")) for url in requested_urls)
    assert messages == []
    page.close()
