"""An attack on DP-ConSE by an adversary who knows all other participants, and reads the published effects."""

from functools import cache
from typing import Final, cast

import numpy as np
from msgspec.structs import replace as replace_fields

from privateer_core.accounting.events import Pure
from privateer_core.algorithms.trial import TrialPolicy
from privateer_core.primitives.contributions import KeyedValues
from privateer_lab.audit.attacks.releases import SEGMENT_ATTACK, segment_log_ratio
from privateer_lab.audit.case import Case
from privateer_lab.audit.law import Scores
from privateer_lab.audit.views import attack_releases, draw_coins, model_for
from privateer_papers.paper_4.dp_conse import DpConseLearner, DpConseSpec

_EPSILON: Final = 1.0
_HORIZON: Final = 22_000
_N_BINS: Final = 1024


def cases(samples: int) -> list[Case]:
    """Return the attack on the participant's segment, one of two."""
    privacy, terms = _build_spec().privacy, _build_spec().first_terms("")
    claim = (privacy.model, privacy.trust.calibration, privacy.bound, privacy.delta)
    is_unsafe, n_samples = terms is not None and not terms.keeps_promise, max(4_000, samples // 16)
    return [Case(SEGMENT_ATTACK, "paper-4-dp-conse", *claim, Pure(_EPSILON), _sample_effects, n_samples, is_unsafe)]


@cache
def _build_spec() -> DpConseSpec:
    """Return a spec with a round for each half; the second half flips coins in pairs of wide bins."""
    return DpConseSpec.model_validate(
        {
            "experiment": {"name": "audit", "arms": ["a", "b"], "horizon": _HORIZON, "round_size": _HORIZON // 2},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "segments": {"features": ["x"], "bins": _N_BINS},
            "privacy": {"model": model_for(attack_releases), "epsilon": _EPSILON, "delta": 1 / _HORIZON},
            "algorithm": {"name": "paper-4-dp-conse"},
        }
    )


def _sample_effects(case: int, count: int) -> Scores:
    """Return ``count`` log-likelihood ratios from DP-ConSE's published effects of the participant's and the other bin.

    For all others the control's reward is 1 and the treatment's 0; for the participant the control's is 0 and the
    treatment's 1, so that the effect of the participant's bin rises with either arm.
    """
    learner = DpConseLearner(_build_spec())
    seeds = draw_coins(-(-count // (learner.wide // 2)))
    effects = np.concatenate([_run_experiment(learner, case, int(seed)) for seed in seeds])[:count]
    coins = learner.numbers.coins
    return segment_log_ratio(effects + 1, 2 / coins, 2 / (_EPSILON * coins))


def _run_experiment(learner: DpConseLearner, case: int, seed: int) -> Scores:
    """Return effects of each pair of wide bins of an experiment, (pairs, 2), with a target participant in each pair."""
    step = learner.open_next_round(learner.start(seed), 1, seed)
    policy = cast(TrialPolicy, step.policy)
    no_release = policy.mechanism.simulate(_no_contributions(), np.random.default_rng(0))
    state = learner.learn(step.state, policy, replace_fields(no_release, reports=step.batch_size))
    step = learner.open_next_round(state, 2, seed)
    policy = cast(TrialPolicy, step.policy)
    person_bins = 2 * np.arange(learner.wide // 2) + case
    bins = np.concatenate([person_bins, np.repeat(np.arange(learner.wide), learner.numbers.coins - 1)])
    is_person = np.arange(len(bins)) < len(person_bins)
    contexts, coins = (bins[:, None] + 0.5 / _N_BINS) / learner.wide, draw_coins(len(bins))
    decisions = policy.decide(contexts, coins)
    rewards = (decisions.arms == is_person).astype(np.float64)
    contributions = policy.contribute(contexts, coins, decisions, rewards)
    release = policy.mechanism.simulate(contributions, np.random.default_rng(0))
    return learner.learn(state, policy, replace_fields(release, reports=step.batch_size)).effects.reshape(-1, 2)


def _no_contributions() -> KeyedValues:
    zeros = np.zeros(0, np.int64)
    return KeyedValues(zeros.astype(np.uint32), zeros, zeros, zeros.astype(np.float64))
