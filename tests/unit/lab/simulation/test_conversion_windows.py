"""Conversion windows in simulations: reports come late, and assumptions are listed."""

import json

import pytest

from privateer_core.errors import SpecError
from privateer_lab.planning.plans import make_variants
from privateer_lab.simulation.delayed_reports import describe_assumptions, expected_pending, find_report_delay
from privateer_lab.simulation.simulate import simulate_once
from tests.support.specs import make_spec
from tests.unit.lab.cli.test_command_line import SPEC, run

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
    assert delay is not None
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
