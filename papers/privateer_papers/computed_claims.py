"""Claims of the papers, computed: privacy by the accountant, constants and sizes by the papers' formulas.

Their words, and those of every numbered claim, are in ``claims.md``.
"""

import math
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.special import expit

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Gaussian, Pure, Repeated
from privateer_core.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_standard_deviation
from privateer_core.accounting.numerics import find_root
from privateer_core.arrays import Array
from privateer_papers.paper_1.figures import rates as rates_1
from privateer_papers.paper_2.slopes import PrivateLoss
from privateer_papers.paper_3.privatelasso import noise_scale
from privateer_papers.paper_3.theorems import LEMMA
from privateer_papers.paper_5 import rates as rates_5
from privateer_papers.published_trust import published_bits

_DELTAS: Final = (0.25, 1e-3, 1e-5, 1e-6)
_MIN_EPSILON: Final = 1e-2
_MAX_LOG_PEOPLE: Final = 60.0
_MIN_DECIMAL_DELTA: Final = 0.01
Figures = dict[str, Any]


class NumberedClaim(NamedTuple):
    """A claim of a paper under the number that the paper gives it."""

    paper: int
    claim: str
    formula: str  # what is claimed or checked, in LaTeX
    verdict: str
    commands: str  # names of reproductions, commands or pages that show it, in Markdown
    tests: tuple[str, ...]  # files in tests/papers that compute it a second way


def list_claims(paper: int) -> list[Figures]:
    """Return the claims of a paper, 1 to 5, each with its source and the truth. An epsilon of None is infinite."""
    words = [cells[1:] for cells in _read_table(4) if cells[0] == str(paper)]
    return [
        {"claim": claim.format(**figures), "source": source, **figures, "why": why}
        for (claim, source, why), rows in zip(words, _CLAIMS[paper](), strict=True)
        for figures in rows
    ]


def list_numbered_claims() -> tuple[NumberedClaim, ...]:
    """Return all numbered claims in the order of the papers."""
    claims = []
    for number, claim, formula, verdict, shown, tests in _read_table(6):
        words, names = verdict.format(**_figures(int(number))), tuple(re.findall("`(.*?)`", tests))
        claims.append(NumberedClaim(int(number), claim, formula, words, shown, names))
    return tuple(claims)


def list_summaries(paper: int) -> tuple[str, ...]:
    """Return the computed sentences of a paper's chapter in the documentation."""
    document = tomllib.loads(Path(__file__).with_name("papers.toml").read_text(encoding="utf-8"))
    return tuple(text.format(**_figures(paper)) for text in document["papers"][paper - 1]["summaries"])


@cache
def _read_table(width: int) -> list[list[str]]:
    """Return the cells of the table of ``claims.md`` that has this many columns, first the paper's number."""
    lines = Path(__file__).with_name("claims.md").read_text(encoding="utf-8").splitlines()
    rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    return [cells for cells in rows if len(cells) == width and cells[0].isdigit()]


@cache
def _figures(paper: int) -> Figures:
    """Return the figures in a paper's verdicts and summaries, by name."""
    rows = _CLAIMS[paper]()
    if paper == 1:
        figures = {"honest_epsilon": rows[1][0]["true_epsilon"], "people_power": 1 - rates_1.EXPONENT}
        return figures | {"tau_ratio": rows[2][0]["printed_tau_over_the_codes_at_d_2"], "dimension": rates_1.DIMENSION}
    if paper == 2:
        bounds = {"linear_bound": rows[1][0]["true_bound"], "linear_c": rows[1][0]["claimed_bound"]}
        proxies = {"published_proxy": PrivateLoss(1.0, 1e-5).proxy, "bit_proxy": PrivateLoss(1.0).proxy}
        logistic_bound = rows[2][0]["true_bound"]
        thresholds = _format_thresholds(rows[0], math.floor)
        return {"thresholds": thresholds, "logistic_bound": logistic_bound, **bounds, **proxies}
    if paper == 3:
        millions = math.floor(rows[2][0]["holds_from_epsilon"] / 1e5) / 10
        return {"noise_scale": rows[1][0]["noise_scale"], "millions": millions}
    if paper == 4:
        people = list(rows[1][0].values())
        tenths = (math.floor(people[1] / 1e5) / 10, math.floor(people[2] / 1e8) / 10)
        words = (f"{math.floor(people[0] / 1e3)},000", f"{tenths[0]} million", f"{tenths[1]} billion")
        return rows[0][0] | rows[2][0] | {f"people_{d}": text for d, text in enumerate(words, 1)}
    return {
        "thresholds": _format_thresholds(rows[0], math.ceil),
        "printed_thresholds": _format_thresholds(rows[1], math.ceil),
        "true_delta": rows[0][0]["true_delta"],
        "bit_noise_ratio": next(r["noise_over_analytic_gaussian"] for r in rows[2] if r["claimed_epsilon"] == 10),
        "regret_power": rates_5.REGRET_POWER,
        "central_power": rates_5.TRAFFIC_POWERS["central"],
        "shuffle_power": rates_5.TRAFFIC_POWERS["shuffle"],
    }


def _format_thresholds(rows: list[Figures], round_hundredths: Callable[[float], int]) -> str:
    """List the epsilons up to which a constant of normal noise is enough, with their deltas, in words.

    round_hundredths: ``math.floor`` where it is said to hold, ``math.ceil`` where it is said to be too small.
    """
    parts = []
    for row in rows:
        delta = row["claimed_delta"]
        text = f"{delta:g}".removeprefix("0") if delta > _MIN_DECIMAL_DELTA else f"{delta:.0e}".replace("e-0", "e-")
        parts.append(f"{round_hundredths(100 * row['holds_up_to_epsilon']) / 100:.2f} at delta {text}")
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _paper_1_claims() -> list[list[Figures]]:
    honest = account(Pure(1.0)).epsilon(0.0)
    return [
        [{"claimed_epsilon": 1.0, "true_epsilon": None}],
        [{"claimed_epsilon": 1.0, "true_epsilon": honest}],
        [{"printed_tau_over_the_codes_at_d_2": 2 * math.sqrt(2)}],
    ]


def _check_normal_noise(delta: float, factor: float = 2.0, epsilon: float = 10.0) -> Figures:
    """Return the largest epsilon at which a constant of normal noise is valid, and the true delta above it."""
    scale = math.sqrt(factor * math.log(1.25 / delta))
    max_epsilon = find_root(lambda e: gaussian_delta(e, scale / e, 1.0) - delta, _MIN_EPSILON, epsilon)
    curve = account(Gaussian(scale / epsilon))
    return {
        "holds_up_to_epsilon": max_epsilon,
        "claimed_epsilon": epsilon,
        "claimed_delta": delta,
        "true_delta": curve.delta(epsilon),
        "true_epsilon": curve.epsilon(delta),
    }


def max_residual(link: Callable[[Array], Array], max_noise: float | None) -> tuple[float, float]:
    """Return C, the largest |g| on [-1, 1], and the largest |g(z) - y| there: the length of paper 2's gradient.

    max_noise: the bound of the noise of y = g(z') + noise; None if y is 0 or 1.
    """
    values = link(np.linspace(-1.0, 1.0, 2001))
    rewards = (0.0, 1.0) if max_noise is None else (float(values.min()) - max_noise, float(values.max()) + max_noise)
    gaps = (abs(float(value) - reward) for value in (values.min(), values.max()) for reward in rewards)
    return float(np.abs(values).max()), max(gaps)


def _paper_2_claims() -> list[list[Figures]]:
    bounds = (max_residual(np.asarray, 1.0), max_residual(expit, None))
    return [
        [_check_normal_noise(delta) for delta in _DELTAS],
        *([{"claimed_bound": bound, "true_bound": true_bound}] for bound, true_bound in bounds),
    ]


def _paper_3_claims() -> list[list[Figures]]:
    return [
        [{"claimed_epsilon": 1.0, "claimed_delta": 1e-6, "true_epsilon": None}],
        [{"noise_scale": noise_scale(1_000_000, 3, 1.0, 1e-6), "largest_estimate": 1.0}],
        [{"holds_from_epsilon": LEMMA.epsilon}],
        [{}],
    ]


def _no_change_probability(epsilon: float, length: float) -> float:
    """Return the probability of no change by paper 4's Lap+, whose normaliser has e^(epsilon length / 2)."""
    root_factor = math.exp(epsilon / 2)
    return (root_factor - 1) / (root_factor + 1 - math.exp(epsilon * length / 2))


def min_people_to_drop(dimension: int) -> float:
    """Return the n from which a bin of paper 4's first half has the R_1 participants of its first test."""

    def spare_people(log_n: float) -> float:
        n = math.exp(log_n)
        return math.pow(n, 2 / (2 + dimension)) / 2 - (32 * math.log(16 * n) * 4 + 1)

    return math.exp(find_root(spare_people, 1.0, _MAX_LOG_PEOPLE))


def _paper_4_claims() -> list[list[Figures]]:
    probabilities = {"printed_probability": 3.0, "true_probability": -3.0}
    return [
        [{"claimed_epsilon": 1.0, "true_epsilon": account(Repeated(Pure(1.0), 3)).epsilon(0.0)}],
        [{f"people_until_an_arm_can_be_dropped_d_{d}": min_people_to_drop(d) for d in (1, 2, 3)}],
        [{name: _no_change_probability(1.0, length) for name, length in probabilities.items()}],
    ]


def _paper_5_claims() -> list[list[Figures]]:
    return [
        [_check_normal_noise(delta) for delta in _DELTAS],
        [_check_normal_noise(delta, factor=1.0) for delta in _DELTAS],
        [_check_shuffled_bits(epsilon) for epsilon in (1.0, 5.0, 10.0, 15.0)],
    ]


def _check_shuffled_bits(epsilon: float) -> Figures:
    bits = published_bits(epsilon, 0.25, 60, 1024)
    curve = account(bits.event)
    return {
        "claimed_epsilon": epsilon,
        "claimed_delta": 0.25,
        "true_delta": curve.delta(epsilon),
        "true_epsilon_at_1e-6": curve.epsilon(1e-6),
        "true_epsilon_at_1e-6_in_l2_by_the_normal_limit": gaussian_epsilon(1e-6, bits.standard_deviation),
        "bits_per_person_and_coordinate": bits.bits,
        "noise_over_analytic_gaussian": bits.standard_deviation / gaussian_standard_deviation(epsilon, 0.25),
    }


_CLAIMS: Final = {1: _paper_1_claims, 2: _paper_2_claims, 3: _paper_3_claims, 4: _paper_4_claims, 5: _paper_5_claims}
