"""The ledger pays once, survives restarts, and holds between threads."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privateer_client.ledger.account_protocol import Payment
from privateer_client.ledger.ledger import Ledger
from privateer_core.errors import AlreadyReported, BudgetExceeded, InputError
from tests.support.devices import pay


def payment(name: str = "http://s/a", epsilon: float = 1.0) -> Payment:
    return Payment(name, 3, "shuffle", epsilon, 1e-6, 4.0)


def test_a_payment_survives_a_restart_and_is_made_once(tmp_path: Path) -> None:
    pay(Ledger(tmp_path / "ledger.db"), payment())
    ledger = Ledger(tmp_path / "ledger.db")
    assert ledger.payment("http://s/a") is not None
    assert ledger.payment("http://s/b") is None
    with pytest.raises(AlreadyReported):
        pay(ledger, payment())
    (stored,) = ledger.payments()
    assert replace(stored, day=0) == payment()


def test_the_total_is_a_limit_that_states_spent_asked_and_limit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=2.5)
    pay(ledger, payment("a"))
    pay(ledger, payment("b"))
    with pytest.raises(BudgetExceeded, match=r"spent 2, asked 1, limit 2\.5"):
        pay(ledger, payment("c"))
    pay(ledger, payment("c", 0.5))


def test_two_payers_cannot_both_pay(tmp_path: Path) -> None:
    def attempt(_: int) -> bool:
        try:
            pay(Ledger(tmp_path / "ledger.db"), payment())
        except AlreadyReported:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(32))) == 1


def test_a_ledger_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="ledger"):
        Ledger(tmp_path / "file" / "ledger.db")


def test_the_ledger_file_is_readable_by_its_user_alone(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "state" / "ledger.db")
    pay(ledger, payment())
    assert ledger.path.stat().st_mode & 0o077 == 0
    assert ledger.path.parent.stat().st_mode & 0o077 == 0


class Days:
    """A clock that tests turn."""

    def __init__(self, day: int) -> None:
        self.day = day

    def now(self) -> float:
        return 86_400.0 * self.day + 5


def test_a_limit_may_look_back_a_window(tmp_path: Path) -> None:
    clock = Days(100)
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=2.0, window_days=7, clock=clock)
    pay(ledger, payment("a"))
    clock.day = 103
    pay(ledger, payment("b"))
    clock.day = 106
    with pytest.raises(BudgetExceeded, match=r"spent 2 in 7 days, asked 1, limit 2"):
        pay(ledger, payment("c"))
    clock.day = 107
    pay(ledger, payment("c"))
    with pytest.raises(BudgetExceeded):
        pay(ledger, payment("d"))
    assert [stored.day for stored in ledger.payments()] == [100, 103, 107]
    with pytest.raises(AlreadyReported):
        pay(ledger, payment("a"))


def test_a_clock_before_1970_forgets_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=1.0, per_server_epsilon=1.0, clock=Days(-100))
    pay(ledger, payment("a"))
    with pytest.raises(BudgetExceeded):
        pay(ledger, payment("b"))


@pytest.mark.parametrize("bad", [-5.0, math.nan])
@pytest.mark.parametrize("field", ["epsilon", "delta", "local_epsilon"])
def test_payments_are_not_refunded(tmp_path: Path, field: str, bad: float) -> None:
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=1.0)
    with pytest.raises(InputError) as refused:
        pay(ledger, replace(payment("a"), **{field: bad}))
    assert refused.value.field == field
    assert ledger.payments() == []


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"total_epsilon": -1.0}, "total_epsilon"),
        ({"total_delta": math.nan}, "total_delta"),
        ({"total_local_epsilon": -math.inf}, "total_local_epsilon"),
        ({"per_server_epsilon": -1e-9}, "per_server_epsilon"),
        ({"per_server_delta": math.nan}, "per_server_delta"),
        ({"per_server_local_epsilon": -1.0}, "per_server_local_epsilon"),
        ({"window_days": 0}, "window_days"),
    ],
)
def test_limits_out_of_range_are_refused(tmp_path: Path, limits: dict[str, float], field: str) -> None:
    with pytest.raises(InputError) as refused:
        Ledger(tmp_path / "ledger.db", **limits)  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize("cost", ["epsilon", "delta", "local_epsilon"])
def test_every_cost_has_a_total_and_a_share(tmp_path: Path, cost: str) -> None:
    def costing(name: str) -> Payment:
        return Payment(name, 1, "shuffle", 0.25, 0.25, 0.25)

    limits: dict[str, Any] = {f"total_{cost}": 1.0}
    ledger = Ledger(tmp_path / "ledger.db", **limits)
    for name in ("http://s/a", "http://s/b"):
        pay(ledger, costing(name))
    with pytest.raises(BudgetExceeded, match=r"spent 0\.5 at http://s, asked 0\.25, limit 0\.5") as refused:
        pay(ledger, costing("http://s/path/c"))
    assert refused.value.field == cost
    for name in ("http://s:81/a", "https://s/a"):
        pay(ledger, costing(name))
    with pytest.raises(BudgetExceeded, match=r"spent 1, asked 0\.25, limit 1 \(.*total_" + cost):
        pay(ledger, costing("http://t/a"))


def test_a_share_looks_back_the_same_window(tmp_path: Path) -> None:
    clock = Days(100)
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=2.0, window_days=7, clock=clock)
    pay(ledger, payment("http://s/a"))
    with pytest.raises(BudgetExceeded, match="spent 1 at http://s in 7 days, asked 1, limit 1"):
        pay(ledger, payment("http://s/b"))
    clock.day = 107
    pay(ledger, payment("http://s/b"))


def test_a_nested_transaction_is_part_of_the_outer_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")

    def fail() -> None:
        with ledger.transaction():
            ledger.store_publication("http://s/a", b"first")
            assert ledger.publication("http://s/a") == b"first"
            raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        fail()
    assert ledger.publication("http://s/a") is None
    with ledger.transaction():
        ledger.store_publication("http://s/a", b"first")
        with ledger.transaction():
            ledger.store_publication("http://s/b", b"second")
    assert Ledger(tmp_path / "ledger.db").publication("http://s/b") == b"second"
    ledger.store_publication("http://s/a", b"third")
    assert ledger.publication("http://s/a") == b"third"
