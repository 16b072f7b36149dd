"""Take the pictures of the dashboard that the README has, in Chromium: ``make pictures``."""

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from privateer_core.algorithms import parse_spec
from privateer_core.privacy.trust import Recipient
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_lab.services.rest import create_experiment

FOLDER: Final = Path("docs/pictures")
BYTES_MAX: Final = 120_000
_WIDTH: Final = 960
_CHECKOUT: Final = {
    "experiment": {
        "name": "checkout",
        "arms": ["three steps", "two steps", "one page"],
        "horizon": 60_000,
        "round_size": 2000,
    },
    "context": {"features": {"device": {"levels": ["phone", "tablet", "desktop"]}}},
    "segments": {"features": ["device"]},
    "privacy": {"model": "local", "epsilon": 4.0},
    "algorithm": {"name": "trial", "guardrails": ["refund"]},
    "population": {
        "name": "effects",
        "base": 0.4,
        "by": "device",
        "effects": {"two steps": [0.08, 0.02, 0.01], "one page": [0.16, 0.05, -0.09]},
        "guardrails": {"refund": {"base": 0.05, "effects": {"one page": 0.01}}},
    },
}
_OFFERS: Final = {
    "experiment": {
        "name": "offers",
        "arms": ["guide", "discount", "free trial"],
        "horizon": 80_000,
        "round_size": 1000,
    },
    "context": {"features": {"activity": {"low": 0.0, "high": 1.0}, "loyalty": {"low": 0.0, "high": 1.0}}},
    "privacy": {"model": "shuffle", "epsilon": 4.0, "delta": 1e-6},
    "algorithm": {"name": "partition"},
    "population": {"name": "peaks"},
}
_WELCOME: Final = {
    "experiment": {"name": "welcome", "arms": ["tour", "video", "examples"], "horizon": 60_000},
    "context": {
        "features": {
            "age": {"low": 18.0, "high": 90.0},
            "hour": {"low": 0.0, "high": 24.0},
            "device": {"levels": ["phone", "tablet", "laptop"]},
            "member": {"boolean": True},
        }
    },
    "privacy": {"model": "shuffle", "epsilon": 4.0, "delta": 1e-6},
    "algorithm": {"name": "additive"},
    "population": {"name": "shapes", "function": 5, "height": 0.3},
}


@contextmanager
def _services(people: dict[str, int]) -> Iterator[Services]:
    """Services with all experiments, to each of which so many people have reported."""
    with (
        tempfile.TemporaryDirectory() as folder,
        run_services(Path(folder), free_port(), free_port(), quiet=True) as at,
    ):
        for tables in (_CHECKOUT, _OFFERS, _WELCOME):
            spec = parse_spec(tables)
            create_experiment(at.admin, spec, at.token)
            shuffler = at.shuffler if spec.privacy.trust.endpoint is Recipient.SHUFFLER else None
            options = {"users": people[spec.name], "population": spec.population, "seed": 1}
            run_load(spec.name, at.server, shuffler, sender_key=at.sender_key, **options)
        yield at


def _take(page: Any, name: str, selector: str, height: int) -> None:
    """Take a picture that begins where an element does."""
    page.locator(selector).first.evaluate("one => scrollTo(0, one.getBoundingClientRect().top + scrollY - 86)")
    page.wait_for_timeout(300)
    path = FOLDER / f"dashboard-{name}.png"
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": _WIDTH, "height": height})
    size = path.stat().st_size
    assert size < BYTES_MAX, f"{path} has {size} bytes"
    print(f"{path}: {size:,} bytes")


def take_all(at: Services, path: str) -> None:
    """Take all pictures with the Chromium at a path."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": _WIDTH, "height": 1000}, color_scheme="light")
        page.goto(f"{at.server}/#/offers")
        page.get_by_text("membership advantage").first.wait_for()
        _take(page, "policy", "#policy", 700)
        page.goto(f"{at.server}/#/checkout")
        page.get_by_text("membership advantage").first.wait_for()
        _take(page, "effects", "#findings", 720)
        page.goto(f"{at.server}/#/welcome")
        page.get_by_text("membership advantage").first.wait_for()
        _take(page, "shapes", "#findings", 760)
        page.goto(f"{at.admin}/#/checkout/change")
        page.get_by_role("button", name="Stop").click()
        page.locator("#action-title:focus").wait_for()
        _take(page, "change", "#change", 860)
        browser.close()


def main() -> None:
    """Take them."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "Chromium is missing"
    with ThreadPoolExecutor(1) as browsing, _services({"checkout": 34_000, "offers": 70_000, "welcome": 60_000}) as at:
        browsing.submit(take_all, at, path).result()


if __name__ == "__main__":
    main()
