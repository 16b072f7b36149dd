"""A few lists of faults, the same each time; the nightly run draws many."""

from tests.faults.runs import every


def test_faults_lose_and_double_nothing() -> None:
    figures = every(range(15))
    print(dict(figures))
    assert figures["deaths"] > 10
    assert figures["rounds"] > 30
