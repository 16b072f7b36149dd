"""A line that holds at every look, as paper 4's intervals are compared with it. Repetitions are segments."""

import numpy as np
import pytest

from privateer_papers.paper_4.confidence_sequence import ConfidenceSequence, noise_remainder
from tests.support.trials import SETTINGS, Trials, central

SEGMENTS = np.array([0.4, 0.3, 0.2, 0.1])
EFFECTS = np.array([0.03, -0.03, 0.06, 0.0])
MEANS = np.stack([np.full(4, 0.3), 0.3 + EFFECTS], axis=1)


def draw_sequences(trials: Trials, looks: int, seed: int, end: float = 1.0) -> list[ConfidenceSequence]:
    rng, sequences = np.random.default_rng(seed), [ConfidenceSequence.begin(trials.design)]
    shares = np.tile(np.array(trials.arms), (trials.count * len(trials.segments), 1))
    for _ in range(looks):
        sequences.append(sequences[-1].add(trials.epoch(rng, round(end * trials.people / looks), shares)))
    return sequences[1:]


@pytest.mark.parametrize("name", ["none", "central 1", "local 1"])
def test_the_line_holds_at_every_look_and_beyond_the_plan(name: str) -> None:
    """800 effects at 40 looks, up to twice the plan: at most .05 miss, less four standard errors .031."""
    truth, missed = np.tile(EFFECTS, 200), np.zeros(800, bool)
    for line in draw_sequences(Trials(SETTINGS[name], SEGMENTS, MEANS, 1e5, 200), 40, 1, end=2.0):
        effect = line.effect()
        missed |= (effect.low[:, 0] > truth) | (effect.high[:, 0] < truth)
    assert missed.mean() <= 0.05


def test_an_error_as_rare_as_stated_is_nearly_reached_by_bits_of_even_odds() -> None:
    """A line that could be much narrower would be a poor one: at many looks a fifth of .05 is spent at least."""
    lines = draw_sequences(Trials(SETTINGS["none"], np.ones(1), np.full((1, 2), 0.5), 4e4, 1_500), 100, 2)
    limits = [line.effect() for line in lines]
    assert 0.01 < np.any([(limit.low > 0) | (limit.high < 0) for limit in limits], axis=0).mean() <= 0.05


def test_the_width_at_the_end_of_plan_is_2_716_standard_deviations_of_a_fair_coin() -> None:
    effect = draw_sequences(Trials(SETTINGS["none"], np.ones(1), np.full((1, 2), 0.5), 4e4, 1), 5, 3)[-1].effect()
    assert (effect.high - effect.estimate)[0, 0] == pytest.approx(2.716 / np.sqrt(4e4), rel=0.001)


def test_noise_is_bounded_by_its_own_transform_and_without_that_the_line_breaks() -> None:
    """Noise of epsilon .02 on 2,000 people, where it exceeds what people vary."""
    setting, rate = central(0.5), 0.05
    values = np.arange(-400, 401)
    law = (1 - setting.decay) / (1 + setting.decay) * setting.decay ** np.abs(values)
    assert noise_remainder(np.array([rate]), setting.noise)[0] == pytest.approx(2 * np.log(law @ np.exp(rate * values)))
    trials = Trials(central(0.02), np.ones(1), np.full((1, 2), 0.5), 1e4, 400)
    line = draw_sequences(trials, 5, 4)[-1]
    difference = line.difference(0.05)
    assert ((difference.low > 0) | (difference.high < 0)).mean() <= 0.05
    half_width = (np.log(40) / line.rate + line.rate / 2 * line.total) / line.hits
    assert (np.abs(difference.estimate) > half_width)[line.hits > 0].mean() > 0.05
