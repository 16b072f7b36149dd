"""``show`` counts pending reports at the shuffler with its operator's precision, or says why it cannot."""

from typing import Any

import pytest

from privateer_core.answer.people import HeldReports, People
from privateer_core.errors import Unavailable
from privateer_lab.services import rest as shuffler_holdings
from privateer_lab.services.rest import ShufflerProgress, fetch_shuffler_progress

FACTS = {"name": "trial", "model": "shuffle", "batch_size": 1000, "shuffler": "8dcc29a0b1977e25"}
URL = "http://127.0.0.1:8003"
SERVER = People.from_parts(5700, 3000, reports=HeldReports(0, None, 1000), out_of_reach=700, is_unknown=True)


def answer_with(monkeypatch: pytest.MonkeyPatch, *rounds: dict[str, Any], shuffler: str = "8dcc29a0b1977e25") -> None:
    """Replace the shuffler's answer by one with these rounds."""
    answer = {"shuffler": shuffler, "min_batch": 100, "rounds": list(rounds)}
    monkeypatch.setattr(shuffler_holdings, "request_json", lambda *_, **__: answer)


def round_progress(people: int, *, batch: int = 1000, full: bool = False, experiment: str = "trial") -> dict[str, Any]:
    return {"experiment": experiment, "version": 3, "batch_size": batch, "held": people, "full": full}


@pytest.mark.parametrize(
    ("rounds", "says"),
    [
        ([round_progress(300), round_progress(700, experiment="other")], "300 to 399 of 1,000 sealed reports wait"),
        ([round_progress(900)], "900 to 999 of 1,000 sealed reports wait"),
        ([round_progress(0)], "0 to 99 of 1,000 sealed reports wait"),
        ([], "0 to 99 of 1,000 sealed reports wait"),
        ([round_progress(1000, full=True)], "a complete batch waits for the server"),
    ],
)
def test_tenths_of_a_batch_are_told(rounds: list[dict[str, Any]], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, *rounds)
    waits = fetch_shuffler_progress(FACTS, URL)
    assert waits is not None
    assert waits.describe() == f"at the shuffler: {says}; its operator takes batches of 100 or more"


def test_small_batches_are_told_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, round_progress(3, batch=8))
    waits = fetch_shuffler_progress(FACTS | {"batch_size": 8}, URL)
    assert waits is not None
    assert waits.describe().startswith("at the shuffler: 3 of 8 sealed reports wait")


def test_unknown_progress_names_the_option_to_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, round_progress(300), shuffler="0" * 16)
    other = fetch_shuffler_progress(FACTS, URL)

    def raise_unavailable(*_: Any, **__: Any) -> Any:
        raise Unavailable(f"no answer from the service at {URL}")

    monkeypatch.setattr(shuffler_holdings, "request_json", raise_unavailable)
    silent = fetch_shuffler_progress(FACTS, URL)
    for waits, reason in ((other, "is not the one that has claimed it"), (silent, "no answer from the service")):
        assert waits is not None
        assert (waits.held, waits.min_batch) == (None, None)
        assert waits.describe().startswith("at the shuffler: not known here, since ")
        assert reason in waits.describe()
        assert "--shuffler-admin-url or PRIVATEER_SHUFFLER_ADMIN_URL" in waits.describe()


def test_an_unclaimed_experiment_has_no_pending_reports() -> None:
    waits = fetch_shuffler_progress(FACTS | {"shuffler": None}, URL)
    assert waits is not None
    assert (waits.held, waits.min_batch) == (0, None)


@pytest.mark.parametrize("changes", [{"model": "local"}, {"model": "central"}, {"batch_size": 0}])
def test_no_progress_is_shown_without_a_shuffler(changes: dict[str, Any]) -> None:
    assert fetch_shuffler_progress(FACTS | changes, URL) is None


def test_pending_reports_are_part_of_the_counts_of_people() -> None:
    people = ShufflerProgress(300, 1000).add_to(SERVER)
    assert (people.held.at_shuffler, people.unknown, people.not_asked) == (300, 99, 1601)
    full = ShufflerProgress(1000, 1000, full=True).add_to(SERVER)
    assert (full.held.at_shuffler, full.unknown, full.held.needed) == (1000, 0, 0)
    assert ShufflerProgress(None, 1000).add_to(SERVER) == SERVER
