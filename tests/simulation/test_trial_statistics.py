"""What intervals of trials promise, on thousands of trials, and the loss that their answers expect."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.parts import Losses
from privateer_server.algorithms.trial import trial_answer
from privateer_server.algorithms.trial.allocation import CHOSEN_AFTER, Holdout, compute_matching_shares
from privateer_server.algorithms.trial.evidence.epochs import PlannedEpoch
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence, average_contributions
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.group_sequential import critical_values, p_values
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.treatment_effects import compute_effects
from tests.support.interval_coverage import FACTORS, OUTCOMES, PROMISES, RATES, SHARES, WAYS, Cell, measure_coverage
from tests.support.trials import SETTINGS, Trials, add_in_common, by_trial, central, detectable, named_symbol, one_bit
from tests.unit.server.algorithms.test_trial_answer import make_trial_spec

SEGMENTS = np.array([0.4, 0.3, 0.2, 0.1])
EFFECTS = np.array([0.03, -0.03, 0.06, 0.0])
TIMES = tuple((1.5 ** np.arange(-9.0, 1.0)).tolist())
TRIALS = 1_500
FLOOR = 0.1


@dataclass(frozen=True)
class Outcome:
    """Shares of segments' effects: called an effect though 0, inside at the end, inside at every look; and averages."""

    false: float
    end: float
    always: float
    average_false: float
    average_end: float


def play(
    name: str,
    base: float,
    adapt: bool,
    drift: float = 0.0,
    effect: np.ndarray = EFFECTS,
    segments: np.ndarray = SEGMENTS,
    own_weights: bool = False,
) -> Outcome:
    """Look at TRIALS trials ten times; every look may stop a trial, so any look's call counts."""
    means = np.stack([np.full(4, base), base + effect], axis=1)
    trials = Trials(SETTINGS[name], segments, means, 1e5, TRIALS)
    rng, shares, before, averaged = np.random.default_rng(42), np.full((4 * TRIALS, 2), 0.5), 0.0, []
    evidence = TrialEvidence.begin(replace(trials.design, segments=np.tile(np.maximum(segments, 0.1), TRIALS)))
    truth, always, sums = np.tile(effect, TRIALS), np.ones(4 * TRIALS, bool), evidence.common
    for time in TIMES:
        moved = drift * (time - TIMES[0]) / (1 - TIMES[0])
        epoch = trials.draw_epoch(rng, round((time - before) * 1e5), shares, moved)
        evidence, sums = evidence.add(epoch), add_in_common(sums, evidence, epoch, TRIALS)
        averages = average_contributions(by_trial(evidence.stable if own_weights else sums, TRIALS), evidence.design)
        averaged.append(averages.scores)
        effects = compute_effects(evidence)
        inside = ~((effects.low[:, 0] > truth) | (effects.high[:, 0] < truth))
        always &= inside
        shares, before = compute_matching_shares(evidence, FLOOR) if adapt else shares, time
    is_known = np.isfinite(effects.estimate[:, 0])
    missed = np.abs(averages.estimate - segments @ effect) > critical_values(TIMES, 0.05)[-1] * averages.variance**0.5
    rejected, averaged_p = effects.p_value[:, 0] <= 0.05, p_values(TIMES, np.array(averaged))[-1]
    shares_of = (rejected[truth == 0], inside[is_known], always, averaged_p <= 0.05, ~missed)
    return Outcome(*(float(flags.mean()) for flags in shares_of))


@pytest.mark.nightly
@pytest.mark.parametrize("adapt", [False, True], ids=["fixed", "matching"])
@pytest.mark.parametrize("base", [0.05, 0.3])
@pytest.mark.parametrize("name", SETTINGS)
def test_false_positives_under_optional_stopping(name: str, base: float, adapt: bool) -> None:
    """6,000 effects of 0, 1,500 averages: .05, and four standard errors of .0028 and .0056."""
    figures = play(name, base, adapt, effect=np.zeros(4))
    assert figures.false == pytest.approx(0.05, abs=0.0115)
    assert figures.average_false == pytest.approx(0.05, abs=0.0225)


@pytest.mark.nightly
@pytest.mark.parametrize("adapt", [False, True], ids=["fixed", "matching"])
@pytest.mark.parametrize("base", [0.05, 0.3])
@pytest.mark.parametrize("name", SETTINGS)
def test_averages_beside_empty_and_tiny_segments_hold_their_level(name: str, base: float, adapt: bool) -> None:
    """1,500 averages: four standard errors are .0225, and .02 of coverage, which is .961 at the end."""
    segments = np.array([0.6, 0.395, 0.005, 0.0])
    none = play(name, base, adapt, effect=np.zeros(4), segments=segments)
    assert none.average_false == pytest.approx(0.05, abs=0.0225)
    figures = play(name, base, adapt, effect=np.array([0.03, -0.04, 0.2, 0.0]), segments=segments)
    assert 0.941 <= figures.average_end <= 0.99  # rates that differ as much as .01 and .25 are taken for their middle


@pytest.mark.nightly
def test_planted_averages_in_which_each_segment_has_its_own_weights_are_caught() -> None:
    """Segments that look extreme early count more: .067, with four standard errors of .0025 above .05."""
    figures = [play(name, 0.3, True, effect=np.zeros(4), own_weights=True) for name in SETTINGS]
    assert np.mean([figures_.average_false for figures_ in figures]) > 0.06


@pytest.mark.nightly
@pytest.mark.parametrize("adapt", [False, True], ids=["fixed", "matching"])
@pytest.mark.parametrize("name", SETTINGS)
def test_coverage(name: str, adapt: bool) -> None:
    """6,000 effects, 1,500 averages: standard errors are .0025 to .0028 and .005."""
    figures = play(name, 0.3, adapt)
    assert 0.94 <= figures.end <= 0.972
    assert figures.always == pytest.approx(0.95, abs=0.0115)
    assert figures.average_end == pytest.approx(0.961, abs=0.02)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SETTINGS)
def test_a_base_rate_that_drifts_from_a_fifth_to_a_half(name: str) -> None:
    """The same ranges; matched shares follow early effects while the base rate rises."""
    effect = np.array([0.06, -0.06, 0.0, 0.0])
    figures = play(name, 0.2, True, 0.3, effect)
    assert figures.false == pytest.approx(0.05, abs=0.0165)  # 3,000 effects of 0
    assert 0.94 <= figures.end <= 0.972


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["none", "central 1", "shuffle 1", "local 2"])
def test_three_treatments_whose_shares_go_to_extremes(name: str) -> None:
    """400 trials of 8 effects of 0, with shares down to .0125: .05 and four standard errors of .0039."""
    means = np.array([[0.3, 0.33, 0.3, 0.27], [0.3, 0.3, 0.36, 0.3], [0.3, 0.3, 0.3, 0.3], [0.3, 0.4, 0.3, 0.3]])
    trials = Trials(SETTINGS[name], SEGMENTS, means, 1e5, 400, arms=(0.25,) * 4)
    rng, evidence, shares, before = np.random.default_rng(3), trials.begin(), np.full((1_600, 4), 0.25), 0.0
    for time in TIMES:
        evidence = evidence.add(trials.draw_epoch(rng, round((time - before) * 1e5), shares))
        shares, before = compute_matching_shares(evidence, 0.0125), time
    effects, truth = compute_effects(evidence), np.tile(means[:, 1:] - means[:, :1], (400, 1))
    assert (effects.p_value <= 0.05)[truth == 0].mean() == pytest.approx(0.05, abs=0.0155)
    is_known = np.isfinite(effects.estimate)
    assert 0.94 <= ((effects.low <= truth) & (truth <= effects.high))[is_known].mean() <= 0.98


@pytest.mark.nightly
@pytest.mark.parametrize("floor", [0.025, 0.005])
def test_rare_rewards_and_small_floors_are_called_no_more_often(floor: float) -> None:
    """8,000 effects of 0 at a base rate of .05: at most .05 and four standard errors of .0024."""
    trials = Trials(SETTINGS["none"], SEGMENTS, np.full((4, 2), 0.05), 1e5, 2_000)
    rng, evidence, shares, before = np.random.default_rng(4), trials.begin(), np.full((8_000, 2), 0.5), 0.0
    for time in TIMES:
        evidence = evidence.add(trials.draw_epoch(rng, round((time - before) * 1e5), shares))
        shares, before = compute_matching_shares(evidence, floor), time
    assert (compute_effects(evidence).p_value <= 0.05).mean() <= 0.06


@pytest.mark.nightly
def test_planted_naive_looks_and_pooled_means_are_caught() -> None:
    trials = Trials(SETTINGS["none"], SEGMENTS, np.full((4, 2), 0.3), 1e5, TRIALS)
    rng, before, scores = np.random.default_rng(1), 0.0, []
    evidence = trials.begin()
    for time in TIMES:
        evidence = evidence.add(trials.draw_epoch(rng, round((time - before) * 1e5), np.full((4 * TRIALS, 2), 0.5)))
        scores, before = evidence.scores[..., 0], time
    assert (np.abs(np.nan_to_num(scores)) > 1.96).any(axis=0).mean() > 0.2


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("setting", "people", "share", "base"),
    [
        (setting, people, share, base)
        for setting, share in (
            (SETTINGS["none"], 0.5),
            (central(1.0), 0.25),
            (central(0.1), 0.5),
            (named_symbol(5.5, 4), 0.1),
            (named_symbol(2.0, 4), 0.25),
            (one_bit(1.0), 0.5),
        )
        for people, base in ((20_000, 0.3), (100_000, 0.05))
    ],
)
def test_a_plans_detectable_effect_is_found_in_four_of_five_trials(setting, people, share, base):
    """8,000 trials: power moves by .0179 a percent of the effect, so 5 % are .067, beside four errors of .0045."""
    trials = Trials(setting, np.array([share]), np.array([[base, base]]), people, 8_000)  # type: ignore[arg-type]
    times = TIMES[-8:]
    epochs = [
        PlannedEpoch(size * people, trials.setting.keep, trials.setting.other, trials.setting.noise)
        for size in np.diff((0.0, *times))
    ]
    design, effect = replace(trials, count=1).design, 0.0
    for _ in range(5):  # the mean reward is that of both arms
        effect = float(detectable(design, epochs, base + effect / 2)[0, 0])
    if base + effect > 1:
        pytest.fail(f"the setting is too hard: {effect:.2f}")
    trials = replace(trials, means=np.array([[base, base + effect]]))
    rng, evidence = np.random.default_rng(7), trials.begin()
    for epoch in epochs:
        evidence = evidence.add(trials.draw_epoch(rng, round(epoch.people), np.full((8_000, 2), 0.5)))
    assert (compute_effects(evidence).p_value <= 0.05).mean() == pytest.approx(0.8, abs=0.05)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "max_ratio"), [("none", 0.8), ("central 1", 0.8), ("shuffle 1", 0.8), ("local 2", 1.2), ("local 1", 1.1)]
)
def test_the_gain_from_later_people_is_unbiased_and_as_precise_as_a_holdouts(name: str, max_ratio: float) -> None:
    """200 trials: four standard errors of a mean error are .28 deviations, of its deviation 20 %.

    A holdout of a tenth of the later people, who all get the best constant arm, varies by the variance of a reward, or
    of a randomized bit, times 1/.1 + 1/.9, if every report is about the reward alone.
    """
    trials = Trials(SETTINGS[name], SEGMENTS, np.stack([np.full(4, 0.3), 0.3 + EFFECTS], axis=1), 1e5, 1)
    errors, covered = [], []
    for seed in range(200):
        (value, low, high), truth = measure_holdout_gain(trials, seed)
        errors.append(value - truth)
        covered.append(low <= truth <= high)
    assert abs(np.mean(errors)) < 0.28 * np.std(errors)
    assert np.mean(covered) >= 0.89
    truth_probability = {"local 2": np.tanh(1.0), "local 1": np.tanh(0.5)}.get(name, 1.0)
    rate, later = 0.5 + truth_probability * (0.31 - 0.5), 1e5 * (1 - 1.5**-2)
    holdout = np.sqrt(rate * (1 - rate) * (1 / 0.1 + 1 / 0.9) / later) / truth_probability
    assert np.std(errors) < max_ratio * 1.2 * holdout


def measure_holdout_gain(trials: Trials, seed: int) -> tuple[tuple[float, float, float], float]:
    """Choose at the first look after .4 of the people; return what later people tell of the gain, and the truth."""
    rng, evidence, shares, before = np.random.default_rng(seed), trials.begin(), np.full((4, 2), 0.5), 0.0
    holdout = None
    for time in TIMES:
        epoch = trials.draw_epoch(rng, round((time - before) * trials.people), shares)
        holdout = holdout.add(epoch) if holdout else None
        evidence = evidence.add(epoch)
        shares, before = compute_matching_shares(evidence, 0.073), time
        if holdout is None and time >= CHOSEN_AFTER:
            best, constant = (evidence.precise.difference[:, 0] > 0).astype(int), int(evidence.average.estimate[0] > 0)
            holdout = Holdout.begin(trials.design, float(evidence.people[-1]), best, constant)
    # A policy that gives everybody the constant arm gains exactly nothing, and tells of no gain.
    gain = holdout.gain() or (0.0, 0.0, 0.0)
    assert (gain == (0.0, 0.0, 0.0)) == bool((holdout.best == holdout.constant).all())
    return gain, float(SEGMENTS @ (np.where(holdout.best == 1, EFFECTS, 0.0) - holdout.constant * EFFECTS))


RUNS = 800
PEOPLE = 4000
WIDEST = 0.08
"""Effects are uniform up to this, five standard deviations of an estimate, so that the flat prior is right within."""


def spec(model: str) -> TrialSpec:
    experiment = {"name": "test", "arms": ["a", "b"], "horizon": PEOPLE}
    return make_trial_spec(model, {"stopping_rules": ["decided"]}, segments={}, experiment=experiment)


def losses(model: str) -> np.ndarray:
    """Return the expected, the largest and the true loss of every run that says one, shape (n, 3)."""
    learner: Any = TrialLearner(spec(model))
    rng, rows = np.random.default_rng(12), []
    for seed in range(RUNS):
        effect, state, version = float(rng.uniform(-WIDEST, WIDEST)), learner.start(seed), 1
        while batch := (step := learner.open_next_round(state, version, seed)).batch_size:
            contexts, coins = rng.random((batch, 2)), rng.integers(0, 2**32, batch, dtype=np.uint32)
            decided = step.policy.decide(contexts, coins)
            rewards = (rng.random(batch) < 0.4 + effect * (decided.arms == 1)).astype(float)
            fresh = rng.integers(0, 2**32, batch, dtype=np.uint32) if step.policy.has_fresh_coins else coins
            release = step.policy.mechanism.simulate(step.policy.contribute(contexts, fresh, decided, rewards), rng)
            state, version = learner.learn(state, step.policy, release), version + 1
        first = learner.answer(state).first_of(Losses)
        (loss,) = first.expected_losses
        if loss.expected is not None:
            rows.append((loss.expected, loss.most, max(0.0, effect if loss.name == "a" else -effect)))
    return np.array(rows)


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["none", "central"])
def test_the_expected_loss_is_the_true_loss_on_average(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called wrong once in 10,000 runs of a true one (3.9 standard errors); the seed is fixed.

    The most is exceeded where an interval misses, in 1 of 20 runs at most. Planted: deviations
    that are taken twice as large expect too much.
    """
    losses_ = losses(model)
    assert len(losses_) > 0.9 * RUNS
    expected, bound, true = losses_.T
    error = np.std(expected - true) / len(losses_) ** 0.5
    assert abs(np.mean(expected - true)) < 3.9 * error
    assert np.mean(true > bound) < 0.05 + 3.9 * (0.05 * 0.95 / len(losses_)) ** 0.5
    bound_loss = trial_answer.bound_loss
    monkeypatch.setattr(
        trial_answer, "bound_loss", lambda best, ends, deviations, *args: bound_loss(best, ends, 2 * deviations, *args)
    )
    planted = losses(model)
    assert np.mean(planted[:, 0] - planted[:, 2]) > 3.9 * np.std(planted[:, 0] - planted[:, 2]) / len(planted) ** 0.5


COUNT = 2_000
OFF = 4.5 * float(np.sqrt(0.95 * 0.05 / COUNT))
PROMISED = {"analyze": 0.95, "service": 0.961, "adaptive": 0.961}
"""What one interval of the last look holds with; those of eight looks hold at once with .95."""
FEW = 30.0
"""People with the rarer outcome in each arm; below, intervals are wider than plain ones, which hold too seldom."""
DAY = [
    Cell("bits at .02", 0.1, 2.0, "none", "analyze"),
    Cell("bits at .004", 0.05, 1.0, "none", "analyze"),
    Cell("bits at .5", 0.9, 0.5, "none", "analyze"),
    Cell("money", 0.1, 1.5, "none", "analyze"),
    Cell("money", 0.9, 0.5, "none", "analyze"),
    Cell("counts", 0.05, 2.0, "none", "service"),
    Cell("bits at .08", 0.2, 1.5, "none", "adaptive"),
    Cell("bits at .08", 0.1, 2.0, "central 1", "analyze"),
    Cell("money", 0.2, 1.5, "central 1", "analyze"),
    Cell("bits at .5", 0.1, 1.5, "local 4", "analyze"),
    Cell("counts", 0.1, 2.0, "shuffle 1", "service"),
]


def check(cell: Cell) -> None:
    result, promised = measure_coverage(cell, COUNT, 1), PROMISED[cell.way]
    assert result.resolved * (1 - result.coverage) <= 1 - promised + OFF or result.resolved == 0
    if result.resolved < 0.5:
        return  # where a rule about noisy counts lets few trials speak, these are not like all
    assert result.coverage >= promised - OFF
    if cell.promise == "none" and cell.way == "analyze":
        assert result.coverage <= promised + OFF + 0.01 * (count_rarer_outcomes(cell) < FEW)
        assert 0.97 <= result.width <= (1.05 if count_rarer_outcomes(cell) >= FEW else 1.3)
    if cell.factor == 1:
        assert result.decided <= 1 - promised + OFF


def count_rarer_outcomes(cell: Cell) -> float:
    """How many people of the smaller arm are expected to have the rarer outcome; of numbers, many."""
    rate = RATES.get(cell.outcome)
    if rate is None:
        return np.inf
    treated = min(rate * cell.factor, 1.0)
    return 20_000 * min(cell.share * min(treated, 1 - treated), (1 - cell.share) * min(rate, 1 - rate))


@pytest.mark.parametrize("cell", DAY, ids=lambda cell: f"{cell.outcome} {cell.share} {cell.factor} {cell.promise}")
def test_intervals_hold_the_effect(cell: Cell) -> None:
    check(cell)


@pytest.mark.parametrize("cell", [DAY[0], DAY[3], DAY[4]], ids=["rates", "money", "the other way round"])
def test_planted_intervals_by_a_variance_of_both_arms_are_caught(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold too seldom where the arm with fewer people varies more, and are too wide the other way round."""
    monkeypatch.setattr(Sums, "middle", property(lambda self: np.clip(self.means.mean(axis=-1), 0.0, 1.0)))
    monkeypatch.setattr(Sums, "side_variances", lambda self, critical: (self.variance, self.variance))
    with pytest.raises(AssertionError):
        check(cell)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_matrix_of_coverage(outcome: str, promise: str, way: str) -> None:
    failures = []
    for share, factor in product(SHARES, FACTORS):
        cell = Cell(outcome, share, 1.9 if (outcome, factor) == ("bits at .5", 2.0) else factor, promise, way)
        try:
            check(cell)
        except AssertionError as error:
            failures.append((cell, str(error)))
    assert not failures
