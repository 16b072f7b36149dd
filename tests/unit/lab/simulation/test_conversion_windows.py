"""Conversion windows in simulations: reports come late, and what is assumed is said."""

import json

import pytest

from privateer_core.errors import SpecError
from privateer_lab.planning.plans import variants
from privateer_lab.simulation.delayed_reports import assumed, delay_of, waiting_of
from privateer_lab.simulation.simulate import simulate_once
from tests.support.specs import make_spec
from tests.unit.lab.cli.test_command_line import SPEC, run

WEEK = {"experiment.conversion_window": 7 * 86_400.0, "experiment.horizon": 4000}


def test_a_window_is_simulated_with_the_people_who_come_in_it() -> None:
    """Planted: the same people who report at once, which is what plans and simulations assumed before."""
    spec = make_spec({**WEEK, "experiment.arrivals": 100.0, "population": {"name": "peaks"}})
    assert waiting_of(spec) == 700
    assert waiting_of(make_spec({**WEEK, "population": {"name": "peaks"}})) == 0  # nobody knows
    at_once = make_spec({"experiment.horizon": 4000, "population": {"name": "peaks"}})
    delayed = make_spec(
        {"experiment.horizon": 4000, "population": {"name": "peaks", "delay": {"law": "fixed", "mean": 700}}}
    )
    late, plain, by_hand = (simulate_once(one, 0) for one in (spec, at_once, delayed))
    assert late.regret == by_hand.regret
    assert late.regret > plain.regret
    (variant,) = variants(spec, ("local",), (2.0,))
    assert waiting_of(variant.spec) == 700


def test_what_is_assumed_is_said() -> None:
    assert assumed(make_spec({"population": {"name": "peaks"}})) == []
    (unknown,) = assumed(make_spec({**WEEK, "population": {"name": "peaks"}}))
    assert "Devices report 7 days after choosing" in unknown
    assert "Nobody can know" in unknown
    assert "Set experiment.arrivals" in unknown
    (stated,) = assumed(make_spec({**WEEK, "experiment.arrivals": 100.0, "population": {"name": "peaks"}}))
    assert "700 choose in between: population.delay is fixed at 700 people" in stated
    delayed = make_spec({**WEEK, "population": {"name": "peaks", "delay": {"law": "fixed", "mean": 5}}})
    assert "population.delay" in assumed(delayed)[0]
    delay = delay_of(delayed)
    assert delay is not None
    assert delay.mean == 5
    back = make_spec({**WEEK, "experiment.reports_per_person": 2, "population": {"name": "peaks"}})
    assert (waiting_of(back), "is not simulated" in assumed(back)[0]) == (0.0, True)


@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_commands_say_what_they_assume(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--users", "2000", "--seeds", "1", "--jobs", "1", "--set", "experiment.conversion_window=86400")
    few += ("--models", "local", "--epsilons", "4") if command == "plan" else ()
    code, out, _ = run(capsys, command, SPEC, *few, "--json")
    assert code == 0
    assert "Nobody can know" in json.loads(out)["assumed"][0]
    few += ("--set", "experiment.arrivals=71")
    assert "71 choose in between" in run(capsys, command, SPEC, *few)[1]


@pytest.mark.parametrize("arrivals", [0.0, -1.0, 2e9, float("inf"), float("nan")])
def test_arrivals_that_cannot_be_are_refused(arrivals: float) -> None:
    with pytest.raises(SpecError, match="arrivals"):
        make_spec({**WEEK, "experiment.arrivals": arrivals})


def test_arrivals_that_are_of_no_use_are_a_concern() -> None:
    """A window in which all choose has nobody follow a result; without a window nobody needs to know."""
    assert "does nothing" in make_spec({"experiment.arrivals": 100.0}).concerns()[0]
    assert "before somebody reports" in make_spec({**WEEK, "experiment.arrivals": 1000.0}).concerns()[0]
    assert make_spec({**WEEK, "experiment.arrivals": 100.0}).concerns() == []
