"""Simulated people who return, and reports that come late."""

import json
from pathlib import Path

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.privacy.terms import Terms
from privateer_lab.cli.input_files import load_spec
from privateer_lab.planning.plans import make_variants
from privateer_lab.simulation.delayed_reports import describe_assumptions, expected_pending, find_report_delay
from privateer_lab.simulation.simulate import list_warnings, make_simulation, simulate_once
from privateer_lab.simulation.simulation import ReturningSimulation
from tests.support.phased import small_spec
from tests.support.specs import SHUFFLE, linear_spec, make_spec
from tests.unit.lab.cli.test_command_line import SPEC, run

PEOPLE = {"population": {"name": "peaks"}, "experiment.horizon": 1200, "experiment.round_size": 100}
BACK = PEOPLE | {"experiment.reports_per_person": 4}
CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6}


def visits(run: ReturningSimulation) -> list[list[int]]:
    """Return the people who report in each round of a run."""
    rounds: list[list[int]] = []
    played = run.simulate_choices

    def record_people(policy, raw, rng, reporting=slice(None)):
        people = (run.people + np.arange(len(raw))) % len(run._contexts)
        rounds.append(people[reporting].tolist())
        return played(policy, raw, rng, reporting)

    run.simulate_choices = record_people  # type: ignore[method-assign]
    while run.step.batch_size:
        run.close_round()
    run.finish()
    return rounds


@pytest.mark.parametrize(("model", "times"), [(CENTRAL, 4), ({}, 1)], ids=["central", "local"])
def test_people_return_and_are_in_no_round_twice(model, times):
    sim = make_simulation(make_spec(BACK | model), 0)
    assert isinstance(sim, ReturningSimulation)
    rounds = visits(sim)
    assert all(len(set(people)) == len(people) for people in rounds)
    counted = np.bincount([person for people in rounds for person in people])
    assert np.unique(counted).tolist() == [times]
    outcome = sim.build_run()
    assert (outcome.costs.people, outcome.people) == (1200, 1200 * 4 // times)


@pytest.mark.parametrize(("model", "times"), [("shuffle", 4), ("central", 4), ("local", 1)])
def test_people_with_vectors_come_back_as_well(model, times):
    data = linear_spec(model, population={"name": "disjoint"}).model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"horizon": 1200, "round_size": 300, "min_round_fraction": 0.0, "reports_per_person": 4}
    data["privacy"] |= {"min_batch": 100}
    sim = make_simulation(parse_spec(data), 0)
    rounds = visits(sim)
    assert all(len(set(people)) == len(people) for people in rounds)
    assert np.unique(np.bincount([person for people in rounds for person in people])).tolist() == [times]
    assert sim.build_run().people == 1200 * 4 // times


def test_a_round_of_more_people_than_come_back_has_others():
    spec = make_spec(PEOPLE | CENTRAL | {"experiment.reports_per_person": 20})
    simulation = make_simulation(spec, 0)
    assert isinstance(simulation, ReturningSimulation)
    assert len(simulation._contexts) == 100
    (warning,) = list_warnings(spec, [], {})
    assert "the horizon is that of 60 people, and rounds have up to 100" in warning
    assert list_warnings(make_spec(BACK | CENTRAL), [], {}) == []


def test_a_run_says_what_is_promised(capsys):
    code, out, _ = run(
        capsys, "simulate", SPEC, "--users", "400", "--set", "privacy.model=central", "--set", "privacy.delta=1e-6",
        "--set", "experiment.reports_per_person=4", "--set", "experiment.round_size=100", "--json",
    )  # fmt: skip
    assert code == 0
    assert '"count": 4' in out
    assert '"holds": true' in out
    terms: tuple[Terms, ...] = simulate_once(make_spec(BACK | CENTRAL), 0).terms
    assert {term.reports for term in terms} == {4}
    assert all(0.9e-6 < term.true_delta < 1e-6 for term in terms)


def test_plans_have_as_many_choices_under_every_model():
    variants = make_variants(make_spec(BACK | CENTRAL), ("local", "central"), (1.0,))
    assert [variant.spec.experiment.horizon for variant in variants] == [300, 1200]
    central_variants = make_variants(variants[0].spec, ("central",), (1.0,))
    assert central_variants[0].spec.experiment.horizon == 1200


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"population": {"name": "peaks", "delay": {"law": "fixed", "mean": 10}}}, r"population\.delay: must not be"),
        ({"population": {"name": "peaks", "drift": {"name": "swap", "period": 9}}}, r"population\.drift: must not be"),
        (
            SHUFFLE | {"sources": [{"name": "s", "participants": 9, "epsilon": 1.0, "shares": [0.5, 0.25, 0.25]}]},
            "sources",
        ),
        ({"experiment.reports_per_person": 0}, r"experiment\.reports_per_person"),
        ({"experiment.reports_per_person": 1001}, r"experiment\.reports_per_person"),
        ({"experiment.report_period_seconds": 60}, r"experiment\.report_period_seconds"),
        ({"algorithm.name": "paper-1-ldpmab", "privacy.epsilon": 16.0}, "asks every person once"),
        (CENTRAL | {"privacy.delta": 1e-8}, r"privacy\.delta: must be at least 8e-08 for 4 reports a person"),
    ],
)
def test_impossible_returns_are_refused_in_one_line(changes, error):
    with pytest.raises(SpecError, match=error):
        make_simulation(make_spec(BACK | changes), 0)


def test_several_reports_per_person_of_a_draw_are_refused():
    with pytest.raises(SpecError, match="asks every person once at most"):
        small_spec("central", {"experiment.reports_per_person": 2})


def test_the_usual_period_is_a_day():
    spec = load_spec(Path(SPEC), ["experiment.reports_per_person=20"])
    assert spec.experiment.report_period_seconds == 86_400


WEEK = {"experiment.conversion_window_seconds": 7 * 86_400.0, "experiment.horizon": 4000}


def test_a_window_is_simulated_with_the_people_who_come_in_it() -> None:
    """Planted: the same people who report at once, which is what plans and simulations assumed before."""
    spec = make_spec({**WEEK, "experiment.arrivals_per_day": 100.0, "population": {"name": "peaks"}})
    assert expected_pending(spec) == 700
    assert expected_pending(make_spec({**WEEK, "population": {"name": "peaks"}})) == 0  # nobody knows
    at_once = make_spec({"experiment.horizon": 4000, "population": {"name": "peaks"}})
    delayed = make_spec(
        {"experiment.horizon": 4000, "population": {"name": "peaks", "delay": {"law": "fixed", "mean": 700}}}
    )
    late, plain, by_hand = (simulate_once(windowed, 0) for windowed in (spec, at_once, delayed))
    assert late.regret == by_hand.regret
    assert late.regret > plain.regret
    (variant,) = make_variants(spec, ("local",), (2.0,))
    assert expected_pending(variant.spec) == 700


def test_assumptions_are_listed() -> None:
    assert describe_assumptions(make_spec({"population": {"name": "peaks"}})) == []
    (unknown,) = describe_assumptions(make_spec({**WEEK, "population": {"name": "peaks"}}))
    assert "Devices report 7 days after choosing" in unknown
    assert "Nobody can know" in unknown
    assert "Set experiment.arrivals_per_day" in unknown
    (stated,) = describe_assumptions(
        make_spec({**WEEK, "experiment.arrivals_per_day": 100.0, "population": {"name": "peaks"}})
    )
    assert "700 choose in between: population.delay is fixed at 700 people" in stated
    delayed = make_spec({**WEEK, "population": {"name": "peaks", "delay": {"law": "fixed", "mean": 5}}})
    assert "population.delay" in describe_assumptions(delayed)[0]
    delay = find_report_delay(delayed)
    assert delay.mean == 5
    back = make_spec({**WEEK, "experiment.reports_per_person": 2, "population": {"name": "peaks"}})
    assert (expected_pending(back), "is not simulated" in describe_assumptions(back)[0]) == (0.0, True)


@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_commands_say_what_they_assume(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--users", "2000", "--seeds", "1", "--jobs", "1", "--set", "experiment.conversion_window_seconds=86400")
    options += ("--models", "local", "--epsilons", "4") if command == "plan" else ()
    code, out, _ = run(capsys, command, SPEC, *options, "--json")
    assert code == 0
    assert "Nobody can know" in json.loads(out)["assumed"][0]
    options += ("--set", "experiment.arrivals_per_day=71")
    assert "71 choose in between" in run(capsys, command, SPEC, *options)[1]


@pytest.mark.parametrize("arrivals", [0.0, -1.0, 2e9, float("inf"), float("nan")])
def test_impossible_arrivals_are_refused(arrivals: float) -> None:
    with pytest.raises(SpecError, match="arrivals_per_day"):
        make_spec({**WEEK, "experiment.arrivals_per_day": arrivals})


def test_arrivals_without_effect_are_a_concern() -> None:
    """A window in which all people choose leaves none to follow a result; without a window arrivals have no use."""
    assert "does nothing" in make_spec({"experiment.arrivals_per_day": 100.0}).concerns()[0]
    assert "before somebody reports" in make_spec({**WEEK, "experiment.arrivals_per_day": 1000.0}).concerns()[0]
    assert make_spec({**WEEK, "experiment.arrivals_per_day": 100.0}).concerns() == []
