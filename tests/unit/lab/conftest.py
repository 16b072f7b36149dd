"""Choices of an algorithm that take little time, for tests of other things."""

import pytest

from privateer_core.errors import SpecError
from privateer_lab.drafting import written_draft
from privateer_lab.planning import candidate_runs


@pytest.fixture
def without_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make drafts without the runs that choose an algorithm and features."""
    for name in ("choose_for_log", "choose_for_classes"):
        monkeypatch.setattr(written_draft, name, lambda *_arguments: SpecError("no run was asked for"))


@pytest.fixture
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the runs that choose an algorithm and features a tenth of their time."""
    for name in ("_SEARCH_SECONDS", "_RUN_SECONDS"):
        monkeypatch.setattr(candidate_runs, name, getattr(candidate_runs, name) / 10)
