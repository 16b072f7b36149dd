"""What `account published` says of the papers' claims, computed a second way."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from privateer_papers.computed_claims import list_claims, list_numbered_claims
from privateer_papers.paper_4.world import ConSE
from tests.documents import claims
from tests.papers.test_publications import text_of


def normal_delta(epsilon: float, deviation: float) -> float:
    """Delta of normal noise at sensitivity 1 (Balle and Wang, 2018, Theorem 8)."""
    half, shift = 1 / (2 * deviation), epsilon * deviation
    return float(norm.cdf(half - shift) - math.exp(epsilon) * norm.cdf(-half - shift))


@pytest.mark.parametrize(("paper", "factor", "count"), [(2, 2.0, 4), (5, 2.0, 4), (5, 1.0, 4)])
def test_a_constant_of_normal_noise_holds_up_to_the_stated_epsilon(paper, factor, count):
    start = f"normal noise of sqrt({factor:g} ln"
    rows = [row for row in list_claims(paper) if row["claim"].startswith(start)]
    assert len(rows) == count
    for row in rows:
        delta, end = row["claimed_delta"], row["holds_up_to_epsilon"]
        deviation = math.sqrt(factor * math.log(1.25 / delta))
        assert normal_delta(0.999 * end, deviation / (0.999 * end)) < delta
        assert normal_delta(1.001 * end, deviation / (1.001 * end)) > delta
        assert row["true_delta"] == pytest.approx(normal_delta(10.0, deviation / 10.0), rel=1e-6)


def test_lap_plus_as_printed_has_negative_probabilities():
    """The chances of all changes of a length of 3 at epsilon 1 sum to 1 by the sign that is missing in print."""
    row = next(row for row in list_claims(4) if "Lap+" in row["claim"])
    total = sum(row["true_probability"] * math.exp(-abs(change) / 2) for change in range(-3, 200))
    assert total == pytest.approx(1.0, rel=1e-9)
    assert row["printed_probability"] < 0


def figures_of(paper: int, start: str) -> list[dict[str, Any]]:
    """The computed rows of a paper whose claims start with a text."""
    rows = [row for row in list_claims(paper) if row["claim"].startswith(start)]
    assert rows
    return rows


def test_gradients_by_drawing_points():
    """No point of 200,000 is above the bound, and some are close to it: |g(z) - y| for linear and logistic means."""
    linear, logistic = figures_of(2, "the gradient")
    rng = np.random.default_rng(1)
    z, mean, noise = rng.uniform(-1, 1, (3, 200_000))
    gaps = np.abs(z - (mean + noise))
    assert 0.95 * linear["true_bound"] < gaps.max() <= linear["true_bound"] == 3 * linear["claimed_bound"]
    gaps = np.abs(1 / (1 + np.exp(-z)) - (noise > 0))
    assert 0.99 * logistic["true_bound"] < gaps.max() <= logistic["true_bound"]
    assert logistic["true_bound"] == pytest.approx(logistic["claimed_bound"])


def test_a_bin_of_conse_has_its_first_test_from_the_stated_people_on():
    """The sequences that play, with bins in whole numbers, are within a tenth of the figure."""
    (row,) = figures_of(4, "ConSE drops")
    for dimension in (1, 2, 3):
        people = row[f"people_until_an_arm_can_be_dropped_d_{dimension}"]
        for factor, can_test in ((0.9, False), (1.1, True)):
            sequences = ConSE(round(factor * people), 0.0, dimension=dimension)
            assert (sequences.people / 2 / sequences.bins >= sequences.length(1)) == can_test, (dimension, factor)


def test_every_claim_has_formula_verdict_commands_and_tests_that_exist():
    folder = Path(__file__).parent
    for claim in list_numbered_claims():
        assert claim.verdict
        assert claim.commands
        assert claim.formula or claim.verdict == "nothing to compute"
        assert claim.tests or not re.search(r"`(account|paper-\d-|audit)", claim.commands)
        assert all((folder / name).is_file() for name in claim.tests)


def test_the_pages_have_what_is_computed():
    """Planted: another figure in a chapter is overwritten."""
    for path, text in claims.documents().items():
        assert path.read_text() == text, "run python -m tests.documents claims"
    page = claims.CHAPTERS.read_text()
    assert "5.12 at delta .25" in page
    assert claims.with_summaries(page.replace("5.12 at delta .25", "1 at delta .25")) == page


def test_sentences_of_runs_are_read_with_what_is_said_first():
    page = (
        '<h3 id="paper-1-one">One</h3><p class="note">Slow.</p>\n<p><strong>It&#39;s so.</strong></p>'
        '<code>privateer reproduce paper-1-one --seeds 3</code><h3 id="paper-1-two">Two</h3><p>It needs --adult.</p>'
    )
    assert claims.sentences_of_runs(page) == [("privateer reproduce paper-1-one --seeds 3", "It's so. Slow.")]
    assert len(claims.sentences_of_runs(claims.RUNS.read_text())) == 19


def number(pattern: str, text: str) -> float:
    """The one number that a pattern has in a text."""
    (value,) = set(re.findall(pattern, text))
    return float(value)


@pytest.mark.data
def test_formulas_are_those_of_the_texts():
    """Constants of the rows are read from the papers' texts, and give the same figures."""
    first, second, third, fourth, fifth = ("".join(text_of(paper).split()) for paper in (1, 2, 3, 4, 5))
    assert r"{\tau}_{s}=2\sqrt{d}2^{-s/d}" in first
    assert r"\frac{4}{\varepsilon}\xi_{i,k,s}" in first.replace("%", "")
    assert r"6\sqrt{2\ln(3.75/\delta)}/\varepsilon" in second
    assert "randomnoisein$[-1,1]$" in second
    assert r"$|g(a)|\leqC$" in second
    printed = re.findall(r"\*\*Theorem([12])\.\*\*.{,90}?\\frac\{2B\\sqrt\{(2?)s_l\\ln\(([\d.]+)/\\delta\)\}\}", fifth)
    assert printed == [("1", "2", "1.25"), ("2", "", "1.25")]
    for (_, factor, numerator), kind in zip(printed, ("2", "1"), strict=True):
        for row in figures_of(5, f"normal noise of sqrt({kind} ln"):
            scale = math.sqrt(float(factor or 1) * math.log(float(numerator) / row["claimed_delta"]))
            end = row["holds_up_to_epsilon"]
            assert normal_delta(end, scale / end) == pytest.approx(row["claimed_delta"], rel=1e-6)
    first_constant = number(r"\\xi\\leftarrow\\frac\{\\left\((\d+)\\ln", third.replace("%", ""))
    second_constant = number(r"varepsilon_\{1\}\\left\((\d+)\\bar\{s\}\\ln", third)
    log = math.log(2 * 14 / 1e-6)  # 14 episodes, each with its part of epsilon and delta
    scale = math.sqrt(first_constant * log) * math.sqrt(second_constant * 12 * log) * 2 * 14 * log
    (selection,) = figures_of(3, "the selection")
    assert selection["noise_scale"] == pytest.approx(scale, rel=1e-9)
    sampling, inner = (
        number(rf"R_\{{e\}}=\\max\\\{{\\frac\{{{pattern}", fourth)
        for pattern in (r"(\d+)\\log\(", r"\d+\\log\((\d+)n\\cdot")
    )
    (conse,) = figures_of(4, "ConSE drops")
    people = conse["people_until_an_arm_can_be_dropped_d_1"]
    assert people ** (2 / 3) / 2 == pytest.approx(sampling * math.log(inner * people) / 0.5**2 + 1, rel=1e-9)
    assert r"e^{\frac{\varepsilon}{2}}+1-e^{\frac{\varepsilon}{2}[m]}" in fourth
