"""Room for requests that wait, shared out by sender."""

import pytest

from privateer_core.errors import Unavailable
from privateer_server.api.experiment_routes import ConnectionLimit


def test_one_sender_does_not_exclude_others_from_long_polls() -> None:
    seats = ConnectionLimit(4)
    greedy = [seats.acquire("greedy") for _ in range(4)]
    with pytest.raises(Unavailable):
        seats.acquire("greedy")
    other = seats.acquire("other")
    assert [seat.is_open for seat in greedy] == [False, True, True, True]
    seats.acquire("other")
    assert [seat.is_open for seat in greedy] == [False, False, True, True]
    with pytest.raises(Unavailable):
        seats.acquire("other")  # it would hold more than the greedy one
    assert len(seats) == 4
    seats.release("other", other)
    seats.release("greedy", greedy[0])
    assert len(seats) == 3


def test_a_new_sender_waits_where_all_senders_hold_one_seat() -> None:
    seats = ConnectionLimit(2)
    first, _ = seats.acquire("a"), seats.acquire("b")
    with pytest.raises(Unavailable):
        seats.acquire("c")
    assert first.is_open
