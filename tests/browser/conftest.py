"""A browser, services, and experiments with simulated people for it to look at."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.privacy.trust import Recipient
from privateer_core.spec.spec import Spec
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_lab.services.rest import create_experiment
from tests.support.dashboards import EXPERIMENTS, Experiment

_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
_WAIT_MILLISECONDS = 15_000
_SETTLE_MILLISECONDS = 300


@contextmanager
def running_services(folder: Path) -> Iterator[Services]:
    """Services on their data in a folder."""
    with run_services(folder, free_port(), free_port(), quiet=True) as at:
        yield at


def begin(at: Services, experiment: Experiment) -> Spec:
    """Create an experiment, and have its people report."""
    spec = parse_spec(experiment.tables)
    create_experiment(at.admin, spec, at.token)
    if experiment.people:
        people(at, spec, experiment.people)
    return spec


def people(at: Services, spec: Spec, count: int, seed: int = 1) -> None:
    """Have people report."""
    shuffler = at.shuffler if spec.privacy.trust.endpoint is Recipient.SHUFFLER else None
    options = {"users": count, "population": spec.population, "seed": seed, "sender_key": at.sender_key}
    with ThreadPoolExecutor(1) as thread_pool_executor:  # this thread has the browser's event loop
        thread_pool_executor.submit(run_load, spec.name, at.server, shuffler, **options).result()


@pytest.fixture(scope="session")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Services with one experiment of every shape that the dashboard draws."""
    with running_services(tmp_path_factory.mktemp("services")) as services:
        for experiment in EXPERIMENTS.values():
            begin(services, experiment)
        yield services


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The system's Chromium."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("PRIVATEER_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "Chromium is missing: install it, or name it by PRIVATEER_CHROMIUM"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield browser
        browser.close()


def open_all(page: Any) -> None:
    """Open everything that is shown when somebody asks for it, and wait until it is there."""
    # A page that follows a stream is never idle: it has everything a moment after it says that it follows.
    page.get_by_text(re.compile("^(Live|Asking every few seconds): last answer at ")).wait_for()
    page.wait_for_timeout(_SETTLE_MILLISECONDS)
    page.evaluate("document.querySelectorAll('main details').forEach(one => { one.open = true; })")
    page.locator("main details:not(:has(> :nth-child(2)))").first.wait_for(state="detached")


class PageLog:
    """The errors of a page, and the addresses of its requests."""

    def __init__(self, page: Any) -> None:
        self.errors: list[str] = []
        self.requested_urls: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if self._is_wrong(message) else None)
        page.on("request", lambda request: self.requested_urls.append(request.url))

    @staticmethod
    def _is_wrong(message: Any) -> bool:
        # The browser itself notes every answer that is not a success: an experiment without a result is one.
        return message.type == "error" and "Failed to load resource" not in message.text


Open = Callable[..., Any]


@pytest.fixture
def new_page(chromium: Any) -> Iterator[Open]:
    """Open pages of a width and a colour scheme; an error on a page, or a request to another host, fails the test."""
    opened: list[tuple[Any, PageLog]] = []

    def open_page(width: int = 1280, scheme: str = "light", **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        page = context.new_page()
        page.set_default_timeout(_WAIT_MILLISECONDS)
        opened.append((page, PageLog(page)))
        return page

    yield open_page
    for page, page_log in opened:
        page.unroute_all(behavior="ignoreErrors")
        page.context.close()
        assert page_log.errors == []
        assert {address.split("/")[2].split(":")[0] for address in page_log.requested_urls} <= {"127.0.0.1"}
