"""What every test can rely on, wherever it runs.

Property tests draw the same examples every time and have no clock, so that a failure is always a failure. Ctrl-C works,
and a failure is told when it happens, so that a run that is cut short has told what it found.
"""

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

# Before numpy is imported: tests run side by side, and threads of linear algebra would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.pop("COLUMNS", None)  # tables are as wide as they need to be, whatever the terminal is

import pytest
from hypothesis import settings

from tests.support.batteries import move_to_the_night

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")

# A shell starts what it puts in the background with Ctrl-C ignored, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


class _Failures:
    """Tells a failure of another process when it happens: pytest itself waits for the end."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reporter.write_line("")
            self._reporter.write_line(f"FAILED {report.nodeid} ({report.when})\n{report.longreprtext[-2000:]}")


def pytest_sessionstart(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Failures(reporter))


@pytest.hookimpl(tryfirst=True)  # before markers decide what is run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    move_to_the_night(items)


# What collecting makes stays: to look for cycles in it, then or later, is in vain and takes a tenth of collecting.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL cluster, for tests that are marked with its name."""
    from tests.support.postgres import cluster

    with cluster() as running:
        yield running
