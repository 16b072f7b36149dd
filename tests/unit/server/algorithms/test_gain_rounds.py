"""Rounds that measure the gain: what the analyzer makes of a release, and when these rounds come."""

from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace as replace_fields
from numpy.typing import NDArray
from scipy import stats

from privateer_core.algorithms import parse_spec
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.policies.gain_policy import ANY, BY_CONTEXT, EITHER, N_KEYS, SINGLE, GainPolicy
from privateer_core.primitives.contributions import CellHits, KeyedValues
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.spec.spec import Spec
from privateer_server.algorithms.gain_rounds.gain_learner import GroupMeans
from privateer_server.experiments.spec_changes import extend_horizon, retire_arm
from privateer_server.rounds.schedule import Schedule
from tests.support.people import rounds
from tests.support.specs import SHUFFLE, make_spec, tables
from tests.support.statistics import FALSE_ALARM, centred

LAYOUT = SlotLayout.ungrouped(N_KEYS, 5)
SHARES = np.array([7, 7, 2]) / 16
SAME = 0.4
"""Share of people whom policy and single option give the same."""
MEANS = {BY_CONTEXT: 0.9, SINGLE: 0.5, EITHER: 0.7, ANY: 0.4}
TRUE = {
    "by_context": 0.6 * 0.9 + 0.4 * 0.7,
    "single": 0.6 * 0.5 + 0.4 * 0.7,
    "any": 0.4,
    "over_single": 0.6 * 0.4,
    "over_any": 0.6 * 0.9 + 0.4 * 0.7 - 0.4,
}
MECHANISMS = {
    "exact": CellPairs(LAYOUT),
    "exact numbers": CellTriples(LAYOUT),
    "a curator's noise": CellPairs(LAYOUT, 20.0),
    "a curator's noise, numbers": CellTriples(LAYOUT, 20.0),
    "named": NamedSymbol(LAYOUT, 2.0, N_KEYS),
    "levels": NamedSymbol(LAYOUT, 4.0, N_KEYS, 5),
    "one bucket": NamedSymbol(LAYOUT, 1.0, 1),
    "two buckets": NamedSymbol(LAYOUT, 1.5, 2),
}
PEOPLE, RUNS = 800, 240


def draw_contributions(rng: np.random.Generator, *, numbers: bool) -> KeyedValues:
    """Return the contributions of participants with groups by coins."""
    group = rng.choice([BY_CONTEXT, SINGLE, ANY], PEOPLE, p=SHARES)
    keys = np.where((rng.random(PEOPLE) < SAME) & (group != ANY), EITHER, group)
    means = np.array([MEANS[key] for key in range(N_KEYS)])[keys]
    values = np.clip(means + rng.normal(0, 0.05, PEOPLE), 0, 1) if numbers else rng.random(PEOPLE) < means
    return KeyedValues.ungrouped(rng.integers(0, 2**32, PEOPLE, dtype=np.uint32), keys, values.astype(np.float64))


@cache
def simulate_estimates(mechanism: str) -> dict[str, NDArray[np.float64]]:
    """Estimates of many releases and their stated deviations by name, (runs, 2) each."""
    mechanism_object: Any = MECHANISMS[mechanism]
    rng, values_by_name = np.random.default_rng(7), dict[str, list[tuple[float, float]]]()
    numbers = mechanism_object.empty().cells.shape[0] > 2
    for _ in range(RUNS):
        release = mechanism_object.simulate(draw_contributions(rng, numbers=numbers), rng)
        means = GroupMeans(release, SHARES, is_named=getattr(mechanism_object, "is_named", True))
        for name in TRUE:
            group = {"by": BY_CONTEXT, "single": SINGLE, "any": ANY}[name.split("_")[-1].replace("context", "by")]
            mean = means.estimate_gain(group) if name.startswith("over") else means.estimate_mean(group)
            values_by_name.setdefault(name, []).append((mean.value, mean.deviation))
    return {name: np.array(pairs) for name, pairs in values_by_name.items()}


def is_honest(estimates: NDArray[np.float64]) -> bool:
    """Whether estimates vary as much as they say: z-scores have a variance of 1 (false alarm: 1e-6, chi-square)."""
    spread = float((((estimates[:, 0] - estimates[:, 0].mean()) / estimates[:, 1]) ** 2).sum())
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(estimates) - 1)
    return bool(low <= spread <= high)


@pytest.mark.parametrize("name", TRUE)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_estimates_are_unbiased_with_the_stated_variance(mechanism: str, name: str) -> None:
    estimates = simulate_estimates(mechanism)[name]
    assert centred(estimates[:, :1], [TRUE[name]])
    assert is_honest(estimates)
    # A variance that forgot half of what there is would be noticed.
    assert not is_honest(estimates * np.array([1.0, np.sqrt(0.5)]))


def test_a_variance_without_the_noise_is_caught() -> None:
    """Planted: the noise of the curator counts for nothing."""
    noisy = CellPairs(LAYOUT, 10.0)
    rng, estimates = np.random.default_rng(3), []
    for _ in range(RUNS):
        release: CellHits = replace_fields(noisy.simulate(draw_contributions(rng, numbers=False), rng), noise=0.0)
        over_single = GroupMeans(release, SHARES, is_named=True).estimate_gain(SINGLE)
        estimates.append((over_single.value, over_single.deviation))
    assert not is_honest(np.array(estimates))


def test_participants_with_the_same_arm_in_both_policies_add_no_variance() -> None:
    rng = np.random.default_rng(5)
    keys = np.repeat([EITHER, BY_CONTEXT, SINGLE, ANY], [80_000, 4_000, 4_000, 12_000])
    values = (rng.random(len(keys)) < 0.5).astype(np.float64)
    values_by_key = KeyedValues.ungrouped(np.zeros(len(keys), np.uint32), keys, values)
    release = CellTriples(LAYOUT).simulate(values_by_key, rng)
    over_single = GroupMeans(release, np.array([0.44, 0.44, 0.12]), is_named=True).estimate_gain(SINGLE)
    # 8,000 people differ; a difference of means over all 88,000 would have an error of .0034.
    assert over_single.deviation == pytest.approx(0.5 * np.sqrt(8_000) / 44_000, rel=0.05)


MEASURED = {
    **SHUFFLE,
    "experiment.evaluation_fraction": 0.1,
    "experiment.horizon": 12_000,
    "experiment.round_size": 2000,
}


@pytest.mark.parametrize("name", ["partition", "linear"])
def test_the_last_participants_measure_the_gain_and_report_once(name: str) -> None:
    spec = parse_spec(tables({**MEASURED, "algorithm.name": name}))
    played = list(rounds(spec, seed=1))
    batches = [result.step.batch_size for result in played]
    assert sum(batches) <= spec.experiment.horizon
    assert batches[-1] == 1200
    assert [isinstance(result.policy, GainPolicy) for result in played] == [False] * (len(played) - 1) + [True]
    assert [result.step.n_reported for result in played] == [sum(batches[:place]) for place in range(len(played))]
    schedule, last = Schedule(spec), played[-1]
    before, after = (schedule.learner.answer(state) for state in (last.step.state, last.state))
    assert (before.stage, before.gain) == ("learning", None)
    assert (after.stage, after.stop_reason, after.people) == ("ended", "its horizon", sum(batches))
    assert after.gain.arm in spec.options
    assert after.gain.people == 1200
    # Nothing is learned from them: everybody gets the policy that was measured.
    final = schedule.learner.open_next_round(last.state, last.policy.version, 5).policy
    assert msgspec.to_builtins(final.view(spec)) == msgspec.to_builtins(last.policy.view(spec))


def test_an_extended_experiment_learns_on_and_measures_the_gain_again() -> None:
    spec = make_spec(MEASURED)
    played = list(rounds(spec, seed=1))
    longer = extend_horizon(spec, 40_000)
    schedule = Schedule(longer)
    state = schedule.learner.apply_spec_change(played[-1].state, spec)
    step = schedule.learner.open_next_round(state, 50, 9)
    assert not isinstance(step.policy, GainPolicy)
    assert step.n_reported == 11_200
    # What was measured stands until it is measured anew.
    assert schedule.learner.answer(state).gain == Schedule(spec).learner.answer(played[-1].state).gain
    assert schedule.learner.answer(state).stage == "learning"
    assert schedule.learner.planned_round(state).batch_size == step.batch_size


def test_an_arm_that_retires_is_not_measured() -> None:
    spec = make_spec(MEASURED)
    played = list(rounds(spec, seed=1))
    spec_without_arm = retire_arm(spec, spec.options[0])
    schedule = Schedule(spec_without_arm)
    state = schedule.learner.apply_spec_change(played[-1].step.state, spec)
    step = schedule.learner.open_next_round(state, 50, 9)
    assert isinstance(step.policy, GainPolicy)
    step.policy.check(spec_without_arm)
    coins = np.arange(5000, dtype=np.uint32)
    assert set(step.policy.decide(np.random.default_rng(1).random((5000, 2)), coins).arms) == {1, 2}


def test_warm_starts_work_with_and_without_an_evaluation_fraction() -> None:
    measured_spec, plain = make_spec(MEASURED), make_spec({**MEASURED, "experiment.evaluation_fraction": 0.0})
    final_state = list(rounds(measured_spec, seed=1))[-1].state
    for before, after, state in ((measured_spec, plain, final_state), (plain, measured_spec, final_state.learner)):
        learned = Schedule(before).learner.extract_learned_state(state)
        start = Schedule(after).learner.start_from_state(learned, before)
        step = Schedule(after).learner.open_next_round(start, 1, 9)
        step.policy.check(after.learning)
        assert step.batch_size == 2000
        assert Schedule(after).learner.answer(start).gain is None


def test_where_no_option_is_known_to_be_best_the_policy_is_compared_with_any() -> None:
    data = {
        "experiment": {
            "name": "test",
            "arms": ["a", "b"],
            "horizon": 4000,
            "round_size": 1000,
            "evaluation_fraction": 0.25,
        },
        "context": {"features": 3},
        "privacy": {"model": "local", "epsilon": 4.0},
        "algorithm": {"name": "sparse", "sparsity": 1},
    }
    spec = parse_spec(data)
    last = list(rounds(spec, seed=1))[-1]
    assert last.policy.single == -1
    gain = Schedule(spec).learner.answer(last.state).gain
    assert gain.arm == "any option by chance"


def extended_by(spec: Spec, state: Any, horizon: int) -> tuple[Schedule, Any]:
    """A schedule with a longer horizon, and the state of a learner that goes on."""
    schedule = Schedule(extend_horizon(spec, horizon))
    return schedule, schedule.learner.apply_spec_change(state, spec)


def test_a_small_extension_does_not_replace_the_measured_gain() -> None:
    """A small extension leaves a few people for the gain: their figure would be noise, beyond all bounds."""
    spec = make_spec(
        {"experiment.evaluation_fraction": 0.1, "experiment.horizon": 12_000, "experiment.round_size": 2000}
    )
    final_state = list(rounds(spec, seed=1))[-1].state
    for horizon, batch in ((12_950, 0), (13_000, 100)):
        schedule, state = extended_by(spec, final_state, horizon)
        # The learner's own people have reported, so that those who measure are left.
        over = replace(state, learner=replace(state.learner, reported=schedule.spec.learning.experiment.horizon))
        assert schedule.learner.open_next_round(over, 50, 9).batch_size == batch
        assert schedule.learner.is_over(over) == (batch == 0)


def test_the_answer_says_where_the_policy_has_changed_since_it_was_measured() -> None:
    spec = make_spec(MEASURED)
    played = list(rounds(spec, seed=1))
    final_state, first = played[-1].state, played[0]

    def warnings(schedule: Schedule, state: Any) -> bool:
        return any("earlier policy" in warning for warning in schedule.learner.answer(state).warnings)

    assert not warnings(Schedule(spec), final_state)
    schedule_without_arm = Schedule(retire_arm(spec, spec.options[0]))
    assert warnings(schedule_without_arm, schedule_without_arm.learner.apply_spec_change(final_state, spec))
    longer, state = extended_by(spec, final_state, 40_000)
    assert not warnings(longer, state)
    learned = longer.learner.learn(state, first.policy, first.release)
    assert warnings(longer, learned)
    assert not warnings(longer, longer.learner.learn(learned, played[-1].policy, played[-1].release))


def test_a_round_for_late_reports_is_as_large_as_the_first_where_others_have_measured_before() -> None:
    """People who measured the gain of a shorter experiment are none of the learner's, and still have reported."""
    changes = {"privacy.model": "central", "privacy.delta": 1e-6, "algorithm.name": "additive"}
    late = {
        "experiment.conversion_window_seconds": 1000.0,
        "experiment.evaluation_fraction": 0.1,
        "experiment.round_size": 2000,
    }
    spec = parse_spec(tables({**changes, **late, "experiment.horizon": 12_000}))
    schedule, state = extended_by(spec, list(rounds(spec, seed=1))[-1].state, 20_000)
    learned = replace(state.learner, reported=schedule.spec.learning.experiment.horizon)
    step = schedule.open_next_step(replace(state, learner=learned), 50, 3)
    assert isinstance(step.policy, GainPolicy)
    drained = schedule.open_drain_round(step, 9)
    assert (drained.batch_size, drained.n_reported) == (2000, step.n_reported)
