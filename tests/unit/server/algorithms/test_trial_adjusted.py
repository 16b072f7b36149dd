"""Covariate adjustment in trials: its worth in the plan, and its name in the answer."""

from typing import Any

import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.answer.parts import Figures
from privateer_lab.simulation.simulate import make_simulation
from privateer_server.algorithms.trial.learner import TrialLearner
from tests.support.specs import tables

TRIAL = {
    "algorithm.name": "trial",
    "algorithm.allocation": "fixed",
    "privacy.model": "none",
    "privacy.epsilon": None,
    "reward.kind": "numeric",
    "reward.standard_deviation": 0.1,
}


def spec_of(**number: float) -> Any:
    return parse_spec(tables(TRIAL | {"reward.covariates": {"minutes": {"mean": 31.0, "slope": 0.8} | number}}))


def test_a_plan_has_the_worth_of_adjusting_with_a_declared_correlation() -> None:
    """Normal rewards vary by sqrt(1 - .6^2) = .8 of what they did."""
    table = TrialLearner(spec_of(correlation=0.6)).build_forecast()[0]
    names = [column.name for column in table.columns]
    adjusted, plain = (names.index(name) for name in ("least effect", "least effect if nothing were adjusted"))
    for row in table.rows:
        assert float(str(row[adjusted])) / float(str(row[plain])) == pytest.approx(0.8, rel=0.01)
    silent = TrialLearner(spec_of()).build_forecast()[0]
    assert "least effect if nothing were adjusted" not in [column.name for column in silent.columns]
    assert silent.rows[0][adjusted] == table.rows[0][plain]


def test_an_answer_names_the_covariates() -> None:
    minutes = {"mean": 31.0, "deviation": 1.0, "correlation": 0.5}
    people = {"name": "numbers", "mean": 0.5, "deviation": 0.1, "before": {"minutes": minutes}}
    for spec, covariate in ((spec_of(), "minutes"), (parse_spec(tables(TRIAL)), None)):
        run = make_simulation(spec.model_copy(update={"population": people}), 1)
        run.close_round()
        answer = run.schedule.answer(run.step)
        (figures,) = (part for part in answer.parts if isinstance(part, Figures))
        assert {fact.name: fact.value for fact in figures.facts}.get("rewards are adjusted by") == covariate
