"""The ledger pays once, survives restarts, and holds between threads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from privateer.errors import AlreadyReported, BudgetExceeded, InputError
from privateer_client.ledger import Ledger, Payment


def payment(name: str = "http://s/a", epsilon: float = 1.0) -> Payment:
    return Payment(name, 3, "shuffle", epsilon, 1e-6, 4.0)


def test_a_payment_survives_a_restart_and_is_made_once(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").pay(payment())
    again = Ledger(tmp_path / "ledger.db")
    assert again.has_paid("http://s/a")
    assert not again.has_paid("http://s/b")
    with pytest.raises(AlreadyReported):
        again.pay(payment())
    assert again.payments() == [payment()]


def test_the_total_is_a_limit_that_states_spent_asked_and_limit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=2.5)
    ledger.pay(payment("a"))
    ledger.pay(payment("b"))
    with pytest.raises(BudgetExceeded, match=r"spent 2, asked 1, limit 2\.5"):
        ledger.pay(payment("c"))
    ledger.pay(payment("c", 0.5))


def test_two_payers_cannot_both_pay(tmp_path: Path) -> None:
    def attempt(_: int) -> bool:
        try:
            Ledger(tmp_path / "ledger.db").pay(payment())
        except AlreadyReported:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(32))) == 1


def test_a_ledger_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="ledger"):
        Ledger(tmp_path / "file" / "ledger.db")


def test_the_ledger_is_its_users_alone(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "state" / "ledger.db")
    ledger.pay(payment())
    assert ledger.path.stat().st_mode & 0o077 == 0
    assert ledger.path.parent.stat().st_mode & 0o077 == 0
