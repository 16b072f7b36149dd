"""Table 1 of paper 5: exponents as printed, slopes of regret and of traffic, and what is above is said first."""

import re

import numpy as np
import pytest

from privateer_papers.paper_5 import rates
from privateer_papers.paper_5.phased_regret import ALPHA, VARIANTS
from privateer_papers.paper_5.rates import RATES, REGRET_POWER, TRAFFIC_POWERS
from privateer_papers.reproduction import Effort, Rows
from tests.papers.test_publications import text_of


def rows_of_rates(regret: float, bits: float) -> Rows:
    """Runs of three seeds at three horizons that grow by these exponents, with little noise."""
    rng, rows = np.random.default_rng(4), Rows()
    for model, calibration in VARIANTS:
        for horizon in (1000, 4000, 16_000):
            for seed in range(3):
                noise = np.exp(0.02 * rng.normal(size=2))
                facts = {"model": model, "calibration": calibration, "people": horizon, "seed": seed}
                figures = {"regret": horizon**regret * noise[0], "bits": horizon**bits * noise[1]}
                rows.append({**facts, **figures, "uniform": float(horizon)})
    return rows


def test_slopes_above_the_papers_are_said_first() -> None:
    slow, fast = rows_of_rates(0.5, 0.7), rows_of_rates(0.7, 1.0)
    assert RATES.warnings(slow) == []
    # All four in regret, and in bits all but shuffle, whose exponent is 1.2.
    assert len(RATES.warnings(fast)) == 7
    assert "0 of 8 slopes of ours, and in 0 of 6" in RATES.sentence(slow)
    assert "7 of 8 slopes of ours, and in 5 of 6" in RATES.sentence(fast)
    lines = RATES.compared(fast)
    assert len(lines) == 8
    assert [line.published for line in lines] == ["0.6"] * 4 + ["0.8", "0.8", "0.8", "1.2"]
    assert "".join(line.text for line in lines[:4]).count("(above)") == len(VARIANTS)
    assert len(RATES.draw(RATES.title, slow).axes) == 2


def test_what_longer_horizons_show_stands_beside_the_slope() -> None:
    """To ten million rounds regret grows with T, and from there to a hundred million with its root."""
    rows = rows_of_rates(1.0, 0.7)
    for seed in range(3):
        for horizon in (10**7, 3 * 10**7, 10**8):
            facts = {"model": "local", "calibration": "tight", "people": horizon, "seed": seed, "bits": 1.0}
            rows.append({**facts, "uniform": 1.0, "regret": (10**7 * horizon) ** 0.5 * (1 + 0.01 * seed)})
    (text,) = (text for text in RATES.warnings(rows) if text.startswith("under local our regret"))
    assert "with T to the 1.00" in text
    assert "From there to T = 100,000,000 our regret under local grows with 0.50 ± 0.00, below the paper's 0.6" in text
    assert "From there" not in RATES.verdict(rows_of_rates(1.0, 0.7))


def test_runs_of_short_horizons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_QUICK_HORIZONS", (1000, 3000, 9000))
    monkeypatch.setattr(rates, "_N_PARTICIPANTS", 20_000)
    rows = Rows(RATES.rows(Effort(quick=True, seeds=1, jobs=1)))
    assert len(rows) == 3 * len(VARIANTS)
    assert all(0 < row["regret"] <= 1.5 * row["uniform"] and row["bits"] > 0 for row in rows)


@pytest.mark.data
def test_exponents_are_printed() -> None:
    text = re.sub(r"\s+", " ", text_of(5))
    assert f"alpha = {ALPHA}" in text.replace("\\", "")
    assert pytest.approx(1 - ALPHA / 2) == REGRET_POWER
    assert text.count(r"T^{1-\alpha/2}") >= 6
    assert r"$O(dT^{3\alpha/2})$ (bits)" in text
    assert TRAFFIC_POWERS["shuffle"] == pytest.approx(1.5 * ALPHA)
