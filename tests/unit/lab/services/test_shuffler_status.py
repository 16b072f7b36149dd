"""``show`` counts what waits at the shuffler, as its operator may know it, and says so where it cannot."""

from typing import Any

import pytest

from privateer_core.answer.people import HeldReports, People
from privateer_core.errors import Unavailable
from privateer_lab.services import shuffler_status as shuffler_holdings
from privateer_lab.services.shuffler_status import ShufflerProgress, held_for

FACTS = {"name": "trial", "model": "shuffle", "batch": 1000, "shuffler": "8dcc29a0b1977e25"}
URL = "http://127.0.0.1:8003"
SERVER = People.from_parts(5700, 3000, held=HeldReports(0, None, 1000), out_of_reach=700, is_unknown=True)


def told(monkeypatch: pytest.MonkeyPatch, *rounds: dict[str, Any], shuffler: str = "8dcc29a0b1977e25") -> None:
    """A shuffler answers that it holds these rounds."""
    answer = {"shuffler": shuffler, "min_batch": 100, "rounds": list(rounds)}
    monkeypatch.setattr(shuffler_holdings, "ask", lambda *_, **__: answer)


def held(people: int, *, batch: int = 1000, full: bool = False, experiment: str = "trial") -> dict[str, Any]:
    return {"experiment": experiment, "version": 3, "batch": batch, "held": people, "full": full}


@pytest.mark.parametrize(
    ("rounds", "says"),
    [
        ([held(300), held(700, experiment="other")], "300 to 399 of 1,000 sealed reports wait"),
        ([held(900)], "900 to 999 of 1,000 sealed reports wait"),
        ([held(0)], "0 to 99 of 1,000 sealed reports wait"),
        ([], "0 to 99 of 1,000 sealed reports wait"),
        ([held(1000, full=True)], "a complete batch waits for the server"),
    ],
)
def test_tenths_of_a_batch_are_told(rounds: list[dict[str, Any]], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, *rounds)
    waits = held_for(FACTS, URL)
    assert waits is not None
    assert waits.words() == f"at the shuffler: {says}; its operator takes batches of 100 or more"


def test_small_batches_are_told_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, held(3, batch=8))
    waits = held_for(FACTS | {"batch": 8}, URL)
    assert waits is not None
    assert waits.words().startswith("at the shuffler: 3 of 8 sealed reports wait")


def test_what_cannot_be_known_is_said_with_the_way_to_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, held(300), shuffler="0" * 16)
    other = held_for(FACTS, URL)

    def away(*_: Any, **__: Any) -> Any:
        raise Unavailable(f"no answer from the service at {URL}")

    monkeypatch.setattr(shuffler_holdings, "ask", away)
    silent = held_for(FACTS, URL)
    for waits, why in ((other, "is not the one that has claimed it"), (silent, "no answer from the service")):
        assert waits is not None
        assert (waits.held, waits.min_batch) == (None, None)
        assert waits.words().startswith("at the shuffler: not known here, since ")
        assert why in waits.words()
        assert "--shuffler-admin-url or PRIVATEER_SHUFFLER_ADMIN_URL" in waits.words()


def test_where_nobody_has_claimed_it_nothing_waits() -> None:
    waits = held_for(FACTS | {"shuffler": None}, URL)
    assert waits is not None
    assert (waits.held, waits.min_batch) == (0, None)


@pytest.mark.parametrize("changes", [{"model": "local"}, {"model": "central"}, {"batch": 0}])
def test_nothing_is_said_where_no_shuffler_is_needed(changes: dict[str, Any]) -> None:
    assert held_for(FACTS | changes, URL) is None


def test_what_waits_is_in_the_account_of_people_as_far_as_it_is_known() -> None:
    people = ShufflerProgress(300, 1000).added_to(SERVER)
    assert (people.held.at_shuffler, people.unknown, people.not_asked) == (300, 99, 1601)
    full = ShufflerProgress(1000, 1000, full=True).added_to(SERVER)
    assert (full.held.at_shuffler, full.unknown, full.held.needed) == (1000, 0, 0)
    assert ShufflerProgress(None, 1000).added_to(SERVER) == SERVER
