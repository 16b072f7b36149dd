"""Detectable effects and required numbers of people, for every trust model."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_core.privacy.trust import TRUST


def test_every_trust_model_has_a_row() -> None:
    table = lab.detectable(people=40_000, epsilon=[1, 4])
    promised = sum(row.promises for row in TRUST.values())
    assert len(table) == 2 * promised + len(TRUST) - promised
    by = {(row["model"], row["epsilon"]): row["least effect"] for row in table.rows()}
    assert by["none", None] < by["central", 1.0] < by["shuffle", 1.0] < by["local", 1.0]
    assert by["local", 4.0] < by["local", 1.0]


def test_one_look_without_privacy_is_the_textbooks() -> None:
    """Two proportions, one look: (z_.975 + z_.8) sqrt(2 p q / (n / 2))."""
    (row,) = lab.detectable(people=10_000, trust="none", looks=1, rate=0.5).rows()
    plain = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * np.sqrt(2 * 0.5 * 0.5 / 5000)
    assert row["least effect"] == pytest.approx(plain, rel=2e-3)
    (size,) = lab.sample_size(plain, trust="none", looks=1, rate=0.5).rows()
    assert size["people"] == pytest.approx(10_000, rel=5e-3)


@pytest.mark.parametrize("model", [name for name, row in TRUST.items() if row.promises])
def test_people_and_effects_agree(model: str) -> None:
    (row,) = lab.sample_size(0.03, trust=model, epsilon=0.8).rows()

    def least_effect(people: int) -> float:
        return float(lab.detectable(people=people, trust=model, epsilon=0.8).rows()[0]["least effect"])

    assert least_effect(row["people"]) == pytest.approx(0.03, rel=5e-3)
    assert least_effect(row["people"] * 9 // 10) > 0.03


def test_notebook_and_plan_have_the_same_figures() -> None:
    """`plan` has the same figures in its tables."""
    plan = lab.plan("examples/trial.toml", trust=["local"], epsilon=[1], users=20_000, seeds=1)
    notebook_table = lab.detectable("examples/trial.toml", trust="local", epsilon=1, people=20_000)
    planned = {row["segment"]: row["least effect"] for row in plan.foreseen.rows()}
    assert {row["segment"]: row["least effect"] for row in notebook_table.rows()} == planned


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"people": 0}, "people: must be a whole number"),
        ({"trust": "magic"}, "trust: must be trust models"),
        ({"epsilon": 99}, "epsilon: must be numbers above 0"),
        ({"arms": 1}, "arms: must be 2 to 16"),
        ({"tails": 2}, "tails: is no part of a plain test"),
        ({"spec": "examples/trial.toml", "rate": 0.2}, "rate: must not be given beside a spec"),
        ({"spec": "examples/peaks-local.toml"}, "foresees no effects"),
    ],
)
def test_a_malformed_plan_is_refused(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(SpecError, match=error):
        lab.detectable(**arguments)


def test_a_promise_that_is_not_possible_is_left_out() -> None:
    table = lab.detectable(people=500, epsilon=1)
    assert {row["model"] for row in table.rows()} == set(TRUST) - {"shuffle"}
    assert "min_batch" in table.notes[0] or "round_size" in table.notes[0]
