"""Reviews and reports in a browser: everybody can read them, at every width, and they ask nobody for anything."""

from pathlib import Path
from typing import Any

import pytest

from privateer_lab.audit.finding import AuditFinding
from privateer_lab.cli.ask import write_report
from privateer_lab.pages.review.document import make_review
from privateer_lab.pages.review.evidence import AuditEvidence
from privateer_lab.pages.review.page import html
from privateer_lab.pages.review.subject import Facts
from privateer_lab.pages.review.subject import running as subject_of
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
    folder, made = tmp_path_factory.mktemp("pages"), []
    for name in EXPERIMENTS:
        made += [folder / f"{name}-report.html", folder / f"{name}-review.html"]
        write_report(name, at.server, made[-2])
        made[-1].write_text(html(make_review(subject_of(name, at.server), _EVIDENCE, Facts())))
    return made


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(pages: list[Path], chromium: Any, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = chromium.new_page(color_scheme=scheme, viewport={"width": 1280, "height": 900}, bypass_csp=True)
    for path in pages:
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        found = Axe().run(page).response["violations"]
        assert not [one["id"] for one in found if one["impact"] in ("serious", "critical")], path.name
    page.close()


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_nothing_is_wider_than_the_screen_and_nothing_is_fetched(pages: list[Path], chromium: Any, width: int) -> None:
    page, asked = chromium.new_page(viewport={"width": width, "height": 900}), []
    page.on("request", lambda request: asked.append(request.url))
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    for path in pages:
        page.goto(path.as_uri())
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over == 0, path.name
        assert page.locator("img").evaluate_all("all => all.every(one => one.naturalWidth > 0)")
    assert all(one.startswith(("file:", "data:")) for one in asked)
    assert said == []
    page.close()
