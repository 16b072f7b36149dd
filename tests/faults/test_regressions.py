"""What the simulation has found, as the lists that showed it."""

import sqlite3
from pathlib import Path

import pytest

from privateer_server.store.store import Store
from tests.faults.operations import Arrive, Away, BackUp, Crash, Full, Junk, Operation, PutBack, Race, Stuck, Upload
from tests.faults.runs import run_on_simulated_time, run_simulation
from tests.faults.shared_world import shared_world_factory
from tests.faults.world import MIXED, PLAIN, world

TOKENS_WHILE_THE_DATABASE_IS_AWAY: list[Operation] = [Upload(PLAIN, 3, tokens=True, late=True), Away(True), Arrive(0)]
"""Whether a token was spent could not be read, and the upload was answered with 500 in the place of 503."""
A_COPY_OF_A_ROUND_WHOSE_BATCH_WAS_DELIVERED: list[Operation] = [
    Upload(MIXED, 9),
    BackUp(),
    Full("server", 7),
    Race(8),
    PutBack(0),
]
"""The shuffler gives no second batch for the round, which stayed open: the journal knows, and it is given up."""
A_COPY_OF_A_ROUND_THAT_IS_OVER_AND_NOT_CLOSED: list[Operation] = [
    Upload(MIXED, 4),
    BackUp(),
    Stuck(50),
    Upload(MIXED, 6),
    *[Upload(PLAIN, 5)] * 6,
    PutBack(0),
    Upload(MIXED, 3),
]
"""The same without a full disk: the shuffler hears that the round is over as soon as its batch is there."""
A_COPY_OF_A_ROUND_THAT_ASKED_FOR_ANOTHER_BATCH: list[Operation] = [
    BackUp(),
    Junk(2),
    Race(4, kills=True),
    Upload(MIXED, 6),
    PutBack(1),
]
"""The first batch went with the database, and the shuffler takes nothing of it again: no report is in two batches."""
A_CLAIM_ON_A_FULL_DISK: list[Operation] = [Full("server", 100), Upload(MIXED, 3)]
"""The shuffler's claim was answered with 500 in the place of 503."""
A_DEATH_AFTER_THE_JOURNAL_HAS_THE_RELEASE: list[Operation] = [
    Crash("server", 1, after=True),
    Race(8),
    Upload(PLAIN, 10),
]


@pytest.mark.parametrize(
    "operations",
    [
        TOKENS_WHILE_THE_DATABASE_IS_AWAY,
        A_COPY_OF_A_ROUND_WHOSE_BATCH_WAS_DELIVERED,
        A_COPY_OF_A_ROUND_THAT_IS_OVER_AND_NOT_CLOSED,
        A_COPY_OF_A_ROUND_THAT_ASKED_FOR_ANOTHER_BATCH,
        A_CLAIM_ON_A_FULL_DISK,
        A_DEATH_AFTER_THE_JOURNAL_HAS_THE_RELEASE,
    ],
)
def test_earlier_failing_lists_pass(operations: list[Operation]) -> None:
    run_simulation(operations)


@pytest.mark.postgres
@pytest.mark.parametrize(
    "operations",
    [
        TOKENS_WHILE_THE_DATABASE_IS_AWAY,
        A_COPY_OF_A_ROUND_WHOSE_BATCH_WAS_DELIVERED,
        A_COPY_OF_A_ROUND_THAT_IS_OVER_AND_NOT_CLOSED,
        A_COPY_OF_A_ROUND_THAT_ASKED_FOR_ANOTHER_BATCH,
    ],
)
def test_earlier_failing_lists_pass_on_shared_data(operations, postgres, monkeypatch):
    run_simulation(operations, shared_world_factory(postgres, monkeypatch))


@pytest.mark.parametrize("method", ["experiment_state", "find_token_report", "claim"])
def test_a_database_that_does_not_answer_is_no_defect_of_the_server(tmp_path: Path, method: str) -> None:
    """A claim and an upload with a token get 503, which asks them to come again, and a change of an operator does."""
    claimed, answer = run_on_simulated_time(_while_it_fails(tmp_path, method))
    assert claimed == (200 if method == "find_token_report" else 503)
    assert answer[:3] == ("503" if method in ("find_token_report", "experiment_state") else "202")


async def _while_it_fails(folder: Path, method: str) -> tuple[int, str]:
    """What a claim and an upload are answered while a method of the store fails."""
    async with world(folder) as at:
        publication = await at.publication(PLAIN)
        assert publication
        body = at.maker.body(publication, 1, at.token(PLAIN))
        assert body

        def failing(*_: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        with pytest.MonkeyPatch.context() as patched:
            methods = (method, "lock_experiments") if method == "experiment_state" else (method,)
            for name in methods:  # uploads read it as they lock it
                patched.setattr(Store, name, failing)
            claimed = await at.claim(MIXED)
            await at.send(body)
        return claimed, body.answers[-1]
