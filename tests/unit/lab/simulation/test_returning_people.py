"""Simulated people who come back: the same ones, never twice in a round; and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.privacy.terms import Terms
from privateer_lab.cli.input_files import load_spec
from privateer_lab.planning.plans import variants
from privateer_lab.simulation.simulate import simulate_once, simulation
from privateer_lab.simulation.simulation import ReturningSimulation
from privateer_lab.simulation.summary import warnings
from tests.support.linears import linear_spec
from tests.support.phased_services import small_spec
from tests.support.specs import SHUFFLE, make_spec
from tests.unit.lab.cli.test_command_line import SPEC, run

PEOPLE = {"population": {"name": "peaks"}, "experiment.horizon": 1200, "experiment.round_size": 100}
BACK = PEOPLE | {"experiment.reports_per_person": 4}
CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6}


def visits(run: ReturningSimulation) -> list[list[int]]:
    """Who reports in each round, as the run goes on."""
    rounds: list[list[int]] = []
    played = run.played

    def watched(policy, raw, rng, reporting=slice(None)):
        people = (run.people + np.arange(len(raw))) % len(run._people)
        rounds.append(people[reporting].tolist())
        return played(policy, raw, rng, reporting)

    run.played = watched  # type: ignore[method-assign]
    while run.step.batch:
        run.close_round()
    run.finish()
    return rounds


@pytest.mark.parametrize(("model", "times"), [(CENTRAL, 4), ({}, 1)], ids=["central", "local"])
def test_everybody_comes_back_and_is_in_no_round_twice(model, times):
    sim = simulation(make_spec(BACK | model), 0)
    assert isinstance(sim, ReturningSimulation)
    rounds = visits(sim)
    assert all(len(set(people)) == len(people) for people in rounds)
    counted = np.bincount([person for people in rounds for person in people])
    assert np.unique(counted).tolist() == [times]
    outcome = sim.outcome()
    assert (outcome.costs.people, outcome.people) == (1200, 1200 * 4 // times)


@pytest.mark.parametrize(("model", "times"), [("shuffle", 4), ("central", 4), ("local", 1)])
def test_people_with_vectors_come_back_as_well(model, times):
    data = linear_spec(model, population={"name": "disjoint"}).model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"horizon": 1200, "round_size": 300, "round_growth": 0.0, "reports_per_person": 4}
    data["privacy"] |= {"min_batch": 100}
    sim = simulation(parse_spec(data), 0)
    rounds = visits(sim)
    assert all(len(set(people)) == len(people) for people in rounds)
    assert np.unique(np.bincount([person for people in rounds for person in people])).tolist() == [times]
    assert sim.outcome().people == 1200 * 4 // times


def test_a_round_of_more_people_than_come_back_has_others():
    spec = make_spec(PEOPLE | CENTRAL | {"experiment.reports_per_person": 20})
    assert len(simulation(spec, 0)._people) == 100
    (said,) = warnings(spec, [], {})
    assert "the horizon is that of 60 people, and rounds have up to 100" in said
    assert warnings(make_spec(BACK | CENTRAL), [], {}) == []


def test_a_run_says_what_is_promised(capsys):
    code, out, _ = run(
        capsys, "simulate", SPEC, "--users", "400", "--set", "privacy.model=central", "--set", "privacy.delta=1e-6",
        "--set", "experiment.reports_per_person=4", "--set", "experiment.round_size=100", "--json",
    )  # fmt: skip
    assert code == 0
    assert '"count": 4' in out
    assert '"holds": true' in out
    terms: tuple[Terms, ...] = simulate_once(make_spec(BACK | CENTRAL), 0).terms
    assert {one.reports for one in terms} == {4}
    assert all(0.9e-6 < one.true_delta < 1e-6 for one in terms)


def test_plans_have_as_many_choices_under_every_model():
    found = variants(make_spec(BACK | CENTRAL), ("local", "central"), (1.0,))
    assert [one.spec.experiment.horizon for one in found] == [300, 1200]
    again = variants(found[0].spec, ("central",), (1.0,))
    assert again[0].spec.experiment.horizon == 1200


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"population": {"name": "peaks", "delay": {"law": "fixed", "mean": 10}}}, r"population\.delay: must not be"),
        ({"population": {"name": "peaks", "drift": {"name": "swap", "period": 9}}}, r"population\.drift: must not be"),
        (SHUFFLE | {"sources": [{"name": "s", "people": 9, "epsilon": 1.0, "shares": [0.5, 0.25, 0.25]}]}, "sources"),
        ({"experiment.reports_per_person": 0}, r"experiment\.reports_per_person"),
        ({"experiment.reports_per_person": 1001}, r"experiment\.reports_per_person"),
        ({"experiment.report_period": 60}, r"experiment\.report_period"),
        ({"algorithm.name": "paper-1-ldpmab", "privacy.epsilon": 16.0}, "asks every person once"),
        (CENTRAL | {"privacy.delta": 1e-8}, r"privacy\.delta: must be at least 8e-08 for 4 reports a person"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes, said):
    with pytest.raises(SpecError, match=said):
        simulation(make_spec(BACK | changes), 0)


def test_who_is_asked_once_does_not_come_back():
    with pytest.raises(SpecError, match="asks every person once at most"):
        small_spec("central", {"experiment.reports_per_person": 2})


def test_the_usual_period_is_a_day():
    spec = load_spec(Path(SPEC), ["experiment.reports_per_person=20"])
    assert spec.experiment.report_period == 86_400
