"""Attack DP-ConSE as somebody who knows everybody else, and reads the effects that it publishes."""

from dataclasses import replace
from functools import cache
from typing import Final, cast

import numpy as np

from privateer_core.accounting.events import Pure
from privateer_core.algorithms.trial import TrialPolicy
from privateer_core.primitives.contributions import KeyedValues
from privateer_lab.audit.attacks.releases import NAME, speaks
from privateer_lab.audit.case import Case
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.views import draw_coins, model_of, releases
from privateer_papers.paper_4.dp_conse import DpConseLearner, DpConseSpec

_EPSILON: Final = 1.0
_PEOPLE: Final = 22_000
_BINS: Final = 1024


def cases(samples: int) -> list[Case]:
    """Return the attack: the person is in the one segment or in the other."""
    privacy, terms = _spec().privacy, _spec().planned("")
    claim = (privacy.model, privacy.trust.calibration, privacy.bound, privacy.delta)
    unsafe, few = terms is not None and not terms.holds, max(4_000, samples // 16)
    return [Case(NAME, "paper-4-dp-conse", *claim, Pure(_EPSILON), _effects, few, unsafe)]


@cache
def _spec() -> DpConseSpec:
    """Return a spec of a round for each half of the people: the second asks pairs of wide bins for their coins."""
    return DpConseSpec.model_validate(
        {
            "experiment": {"name": "audit", "arms": ["a", "b"], "horizon": _PEOPLE, "round_size": _PEOPLE // 2},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "segments": {"by": ["x"], "bins": _BINS},
            "privacy": {
                "model": model_of(releases),
                "epsilon": _EPSILON,
                "delta": 1 / _PEOPLE,
            },
            "algorithm": {"name": "paper-4-dp-conse", "alpha": "welfare"},
        }
    )


def _effects(who: int, count: int) -> Scores:
    """Return effects that DP-ConSE publishes of the person's wide bin and of the other, ``count`` pairs.

    Of everybody else the control's reward is 1 and the treatment's 0; of the person it is the other way round, so
    that the effect of the person's bin rises, whichever arm the coin gives.
    """
    learner = DpConseLearner(_spec())
    seeds = draw_coins(-(-count // (learner.wide // 2)))
    found = np.concatenate([_one_experiment(learner, who, int(seed)) for seed in seeds])[:count]
    coins = learner.numbers.coins
    return speaks(found + 1, 2 / coins, 2 / (_EPSILON * coins))


def _one_experiment(learner: DpConseLearner, who: int, seed: int) -> Scores:
    """Return effects around each pair of wide bins of one experiment, (pairs, 2); a person is in each pair."""
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
