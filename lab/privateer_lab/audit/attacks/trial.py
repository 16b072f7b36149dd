"""Attacks by somebody who knows everybody else, and reads what is released or published of two segments."""

from dataclasses import replace
from functools import cache
from typing import Final, cast

import numpy as np

from privateer_core.accounting.events import Pure
from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.coins import SlotLayout
from privateer_core.contributions import KeyedValues
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.questions import KeyedHits
from privateer_core.sampling.entropy import SecureNoise
from privateer_lab.audit.case import Case
from privateer_lab.audit.evidence import Scores
from privateer_lab.audit.views import draw_coins, model_of, releases
from privateer_server.algorithms.trial.published import PublishedLearner

_EPSILON: Final = 1.0
_PEOPLE: Final = 22_000
_BINS: Final = 1024
_NAME: Final = "one segment or the other"


def cases(samples: int) -> list[Case]:
    """Return attacks on a curator's release and on DP-ConSE: the person is in the one segment or in the other."""
    few, many, event = max(4_000, samples // 16), max(4_000, samples // 4), Pure(_EPSILON)
    privacy, terms = _published().privacy, _published().planned("")
    unsafe = terms is not None and not terms.holds
    ours = (privacy.model, "tight", privacy.bound, 0.0)
    theirs = (privacy.model, privacy.calibration, privacy.bound, privacy.delta)
    return [
        Case(_NAME, "trial", *ours, event, _pairs, many),
        Case(_NAME, "trial", *theirs, event, _effects, few, unsafe),
    ]


def _pairs(who: int, count: int) -> Scores:
    """Releases about one person, who was treated and earned 1, in one of the two segments.

    One release of many experiments' cells: the noise of each is its own.
    """
    mechanism = CellPairs.calibrated(KeyedHits(SlotLayout(0, np.zeros((2 * count, 0), np.uint32))), _EPSILON)
    coins, group = np.zeros(count, np.uint32), np.zeros(count, np.int64)
    records = KeyedValues(coins, 2 * np.arange(count) + who, group, np.ones(count))
    total = mechanism.add(mechanism.empty(), mechanism.randomize(records, SecureNoise()))
    return _speaks(mechanism.release(total, SecureNoise()).positive.reshape(count, 2), 1.0, mechanism.scale)


@cache
def _published() -> TrialSpec:
    """Two rounds, one for each half of the people: the second asks wide bins for their coins, in pairs of bins."""
    return TrialSpec.model_validate(
        {
            "experiment": {"name": "audit", "arms": ["a", "b"], "horizon": _PEOPLE, "round_size": _PEOPLE // 2},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "segments": {"by": ["x"], "bins": _BINS},
            "privacy": {
                "model": model_of(releases),
                "epsilon": _EPSILON,
                "delta": 1 / _PEOPLE,
                "calibration": "published",
            },
            "algorithm": {"name": "trial", "alpha": "welfare"},
        }
    )


def _effects(who: int, count: int) -> Scores:
    """Effects that DP-ConSE publishes of the person's wide bin and of the other, ``count`` pairs.

    Of everybody else the control's reward is 1 and the treatment's 0; of the person it is the other way round, so
    that the effect of the person's bin rises, whichever arm the coin gives.
    """
    learner = PublishedLearner(_published())
    seeds = draw_coins(-(-count // (learner.wide // 2)))
    found = np.concatenate([_one_experiment(learner, who, int(seed)) for seed in seeds])[:count]
    coins = learner.numbers.coins
    return _speaks(found + 1, 2 / coins, 2 / (_EPSILON * coins))


def _one_experiment(learner: PublishedLearner, who: int, seed: int) -> Scores:
    """Effects around each of the pairs of wide bins of one experiment, shape (pairs, 2); a person is in each pair."""
    step = learner.next(learner.start(seed), 1, seed)
    policy = cast(TrialPolicy, step.policy)
    empty = policy.mechanism.simulate(_nobody(), np.random.default_rng(0))
    state = learner.learn(step.state, policy, replace(empty, reports=step.batch))
    step = learner.next(state, 2, seed)
    policy = cast(TrialPolicy, step.policy)
    own = 2 * np.arange(learner.wide // 2) + who
    where = np.concatenate([own, np.repeat(np.arange(learner.wide), learner.numbers.coins - 1)])
    is_person = np.arange(len(where)) < len(own)
    contexts, coins = (where[:, None] + 0.5 / _BINS) / learner.wide, draw_coins(len(where))
    decisions = policy.decide(contexts, coins)
    rewards = (decisions.arms == is_person).astype(np.float64)
    made = policy.contribute(contexts, coins, decisions, rewards)
    release = policy.mechanism.simulate(made, np.random.default_rng(0))
    return learner.learn(state, policy, replace(release, reports=step.batch)).effects.reshape(-1, 2)


def _nobody() -> KeyedValues:
    none = np.zeros(0, np.int64)
    return KeyedValues(none.astype(np.uint32), none, none, none.astype(np.float64))


def _speaks(found: Scores, step: float, scale: float) -> Scores:
    """Log-likelihood ratio of the first segment's number being higher by a step, or the second's; (n,)."""
    present = (np.abs(found) - np.abs(found - step)) / scale
    return np.asarray(np.round(present[:, 0] - present[:, 1], 9))
