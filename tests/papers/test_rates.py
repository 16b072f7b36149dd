"""Rates of paper 1's theorems: the problem has their margin, and slopes that are steeper are named."""

import numpy as np
import pytest

from privateer_lab.environments import environment_for
from privateer_papers.growth import fit_slope
from privateer_papers.paper_1.figures.rates import (
    EXPONENT,
    GROWTH,
    MARGIN,
    RATES,
    compute_bounds,
    compute_information,
    rate_slope,
)
from privateer_papers.paper_1.setting import LDPMAB, build_instance, build_two_sources
from privateer_papers.reproduction import OURS, Rows


def test_the_problem_has_the_margin_that_the_rates_are_for() -> None:
    """The share of people whose gap is at most D grows with D to the margin. Planted: a squared gap has half of it."""
    environment = environment_for(build_instance(1000, 1.0), 0)
    means = environment.means(environment.contexts(0, 400_000, np.random.default_rng(1)))
    best = np.sort(means, axis=1)
    gaps, at = best[:, -1] - best[:, -2], np.geomspace(0.003, 0.1, 6)
    slope, squared = (
        np.polyfit(np.log(at), np.log([(g <= edge).mean() for edge in at]), 1)[0] for g in (gaps, gaps**2)
    )
    assert slope == pytest.approx(MARGIN, abs=0.1)
    assert squared == pytest.approx(MARGIN / 2, abs=0.1)


def test_bounds_are_those_of_the_theorems() -> None:
    """By hand, for d = 2 and beta = 1: n (n epsilon^2)^(-1/3); gamma 2 gives a source the power 6/10."""
    assert pytest.approx(1 / 3) == EXPONENT
    assert compute_information(1000, 0.5) == 250
    assert compute_information(1000, 1.0, 1024, 2.0, 0.0) == pytest.approx(5096)
    assert compute_information(0, 1.0, 1024, 1.0, 2.0) == pytest.approx(64)
    rows = Rows({"panel": "n", "n": n, "information": compute_information(n, 1.0)} for n in (8, 1000, 8000))
    assert compute_bounds(rows, "n")[1].tolist() == pytest.approx([4.0, 100.0, 400.0])
    assert rate_slope(rows, "n") == pytest.approx(2 / 3)


def rows_of_rates(our_exponent: float, published_exponent: float) -> Rows:
    """Regrets of four seeds, which grow with each fact by these exponents and have a little noise."""
    rng, rows = np.random.default_rng(8), Rows()
    for panel, rate in RATES.items():
        for x in (1000, 4000, 16_000):
            case = {"n": x} if rate.fact == "n" else {"n": 4000, rate.fact: x / 16_000 if rate.fact == "epsilon" else x}
            content = compute_information(case["n"], case.get("epsilon", 1.0), case.get("n_aux", 0))
            for seed in range(4):
                for policy, exponent in ((OURS, our_exponent), (LDPMAB, published_exponent)):
                    regret = case[rate.fact] ** exponent * float(np.exp(0.02 * rng.normal()))
                    facts = {"panel": panel, **case, "information": content}
                    rows.append({**facts, "policy": policy, "seed": seed, "regret": regret})
    return rows


def test_what_grows_faster_than_the_bounds_is_said_first() -> None:
    slow, fast = rows_of_rates(-0.9, 1.0), rows_of_rates(1.0, -0.9)
    assert GROWTH.warnings(slow) == []
    assert len(GROWTH.warnings(fast)) == len(RATES)
    assert GROWTH.sentence(slow).startswith("Of 4 slopes of our regret 0 are above the upper bounds', and 4 of those")
    assert all(float(line.run_here[:4]) == pytest.approx(1.0, abs=0.02) for line in GROWTH.compared(slow))
    assert GROWTH.verdict(fast).count("(above)") == 4
    assert len(GROWTH.draw(GROWTH.title, slow).axes) == 4


def test_a_slope_may_be_in_any_fact() -> None:
    rows = Rows({"seed": seed, "n_aux": x, "regret": x**-0.5, "other": x**2.0} for seed in (0, 1) for x in (1, 2, 4))
    assert fit_slope(rows, "n_aux").value == pytest.approx(-0.5)
    assert fit_slope(rows, "n_aux", "other").value == pytest.approx(2.0)
    assert fit_slope(rows, "n_aux").error == pytest.approx(0.0, abs=1e-9)


def test_each_of_two_sources_has_the_printed_number_of_people() -> None:
    assert [source["participants"] for source in build_two_sources(500, 8.0, 0.0)] == [500, 500]
