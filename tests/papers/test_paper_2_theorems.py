"""Theorems 11 and 12 and Corollary 4 of paper 2: private losses, the host of the last, and slopes beside rates."""

import math

import numpy as np
import pytest

from privateer_papers.paper_2.slopes import BEST, PrivateLoss, expected_loss, search_interval
from privateer_papers.paper_2.theorems import CALIBRATIONS, CLAIMS, THEOREMS, fit_claim_slope, play
from privateer_papers.reproduction import Rows


@pytest.mark.parametrize("loss", [PrivateLoss(1.0), PrivateLoss(0.5), PrivateLoss(1.0, 1e-5)])
def test_reports_are_unbiased_and_within_their_proxy(loss: PrivateLoss) -> None:
    """Means of 200 people, 4,000 times: off by 4 standard errors once in 16,000 runs; the seed is fixed."""
    rng = np.random.default_rng(2)
    means = np.array([loss.mean(0.9, 200, rng) for _ in range(4000)])
    assert means.mean() == pytest.approx(expected_loss(0.9), abs=4 * means.std() / 4000**0.5)
    assert 0.85 * loss.proxy < 200 * means.var() < 1.1 * loss.proxy


def test_proxies_by_hand() -> None:
    assert PrivateLoss(math.log(3)).proxy == pytest.approx(1.0)
    assert PrivateLoss(1.0, 1e-5).proxy == pytest.approx(0.25 + 2 * math.log(1.25e5))


def test_regret_is_less_than_that_of_points_at_random_and_grows_slowly() -> None:
    """A random point loses .145 on average."""
    short, long = (
        np.mean([search_interval(PrivateLoss(4.0), people, seed).regret for seed in range(5)])
        for people in (10**5, 10**7)
    )
    assert short < 0.1 * 10**5
    assert 0.3 < math.log(long / short) / math.log(100) < 0.75


def test_the_best_point_is_never_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 10 runs, of which one in 1,000 may lose it. Planted: with a fiftieth of the reports quarters go by chance."""

    def count_losses() -> int:
        ends = [search_interval(PrivateLoss(1.0), 10**6, seed) for seed in range(10)]
        assert max(end.high - end.low for end in ends) < 0.7
        return sum(not end.low <= BEST <= end.high for end in ends)

    assert count_losses() == 0
    monkeypatch.setattr(PrivateLoss, "proxy", 0.02)
    assert count_losses() > 0


def rows_of_rates(steeper: float) -> Rows:
    """Figures of three seeds that follow the paper's rates, and grow faster by an exponent in what changes."""
    rng, rows = np.random.default_rng(3), Rows()
    for name, claim in CLAIMS.items():
        for kind in CALIBRATIONS:
            for x in (0.25, 0.5, 1.0) if claim.fact == "epsilon" else (10**4, 10**5, 10**6):
                people, epsilon = (10**5, x) if claim.fact == "epsilon" else (x, 1.0)
                for seed in range(3):
                    value = claim.rate(people, epsilon) * x**steeper * float(np.exp(0.005 * rng.normal()))
                    facts = {"claim": name, "kind": kind, "people": people, "epsilon": epsilon, "seed": seed}
                    rows.append({**facts, claim.figure: value})
    return rows


def test_rates_by_hand() -> None:
    rows = rows_of_rates(0.0)
    slopes = {name: fit_claim_slope(rows, name, "tight") for name in CLAIMS}
    assert slopes["bandit-epsilon"].promised == pytest.approx(-2.0)
    assert slopes["best-arm"].promised == pytest.approx(-2.0, abs=0.02)
    assert 0.08 < slopes["bandit"].promised < 0.1
    assert 0.5 < slopes["stochastic-convex"].promised < 0.68
    assert slopes["bandit"].value == pytest.approx(slopes["bandit"].promised, abs=0.02)


def test_rates_that_are_exceeded_are_said_first() -> None:
    assert THEOREMS.warnings(rows_of_rates(-0.1)) == []
    fast = rows_of_rates(0.3)
    assert len(THEOREMS.warnings(fast)) == len(CLAIMS)
    assert "exceeded 4 times by ours, and 4 times by its algorithms" in THEOREMS.sentence(fast)
    assert THEOREMS.verdict(fast).count("(above)") == 2 * len(CLAIMS)
    assert len(THEOREMS.compared(fast)) == len(CLAIMS)
    assert len(THEOREMS.draw(THEOREMS.title, fast).axes) == len(CLAIMS)


@pytest.mark.parametrize("kind", CALIBRATIONS)
def test_runs_have_samples_and_regret(kind: str) -> None:
    row = play("best-arm", kind, 2_000_000, 4.0, 0)
    assert 1000 < row["samples"] < 1_000_000
    assert play("bandit", kind, 2000, 1.0, 0)["regret"] > 0
