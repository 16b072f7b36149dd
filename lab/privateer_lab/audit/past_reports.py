"""Attacks on reports of sources, by neighbours who had the same arm with different propensities."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final, cast

import numpy as np

from privateer_core.accounting.accountant import account
from privateer_core.policies.past_arms import recall_arms
from privateer_core.privacy.trust import TIGHT
from privateer_core.spec.experiment import Source
from privateer_core.spec.spec import Spec
from privateer_lab.audit.case import Case
from privateer_lab.audit.first_rounds import FirstRound, count_reports
from privateer_lab.audit.law import Scores
from privateer_lab.audit.likelihoods import log_likelihood
from privateer_lab.audit.views import Coins, Target, attack_releases
from privateer_lab.audit.whole_experiments import iterate_tight_claims

_SOURCE: Final = "past"
_N_PARTICIPANTS, _EPSILON = 20_000, 1.0
_LEAST: Final = 0.05
_PROPENSITIES: Final = (_LEAST, 1.0)
"""Propensities of the two neighbours: weighing keeps the first one's contribution, and mostly not the other's."""
_CONTEXT, _ARM, _REWARD = 0.1, 0, 1.0
"""What both neighbours have in common."""


def past_cases(samples: int, algorithms: set[str] | None = None) -> list[Case]:
    """Build an attack on a source of every instance of an algorithm that takes sources.

    Reports with a claim of their own are opened, and of a curator the release is attacked.
    """
    cases, count = [], count_reports(samples)
    for name, instance, own_spec, _ in iterate_tight_claims(algorithms):
        if not own_spec.capabilities.takes_sources:
            continue
        spec = _with_source(own_spec)
        terms = spec.first_terms(_SOURCE)
        assert terms is not None
        model, open_round = spec.privacy.model, cache(partial(FirstRound.open, spec))
        if event := terms.mechanism.report_event:
            epsilon, sample = account(event).epsilon(0.0), partial(_score_reports, open_round)
            case_name = f"sealed reports of a source, {instance}"
            cases.append(Case(case_name, name, model, TIGHT, epsilon, 0.0, event, sample, count))
        elif event := terms.event:
            promise, sample = (terms.epsilon, terms.delta), partial(_score_releases, open_round)
            case_name = f"release of a source, {instance}"
            cases.append(Case(case_name, name, model, TIGHT, *promise, event, sample, samples))
    return cases


def _with_source(spec: Spec) -> Spec:
    """Return the spec with a source whose propensities are the devices' own."""
    least = (_LEAST,) * len(spec.options)
    source = Source(name=_SOURCE, participants=_N_PARTICIPANTS, epsilon=_EPSILON, min_propensities=least)
    return spec.model_copy(update={"sources": (source,)})


def _contribute(policy: Any, dimension: int, coins: Coins, *, is_kept: bool) -> Any:
    """Return the contributions of equal participants with these coins, all of whom weighing keeps or leaves out."""
    contexts, arms = np.full((len(coins), dimension), _CONTEXT), np.full(len(coins), _ARM if is_kept else -1)
    return recall_arms(policy, contexts, coins, arms, np.full(len(coins), _REWARD))


def _score_reports(open_round: Callable[[], FirstRound], neighbour: int, count: int) -> Scores:
    """Let a neighbour report through the client library, open the reports, and return their log-likelihood ratios."""
    first_round = open_round()
    spec, policy = first_round.opened.spec, first_round.opened.step.policy
    participation = first_round.join(_SOURCE)
    contexts, arms = np.full((count, spec.dimension), _CONTEXT), np.full(count, _ARM)
    past = (contexts, arms, np.full(count, _REWARD), np.full(count, _PROPENSITIES[neighbour]))
    rows = first_round.open_reports(participation.make_past_reports(*past))
    kept_densities, left_out_densities = (
        log_likelihood(policy.terms.mechanism, _contribute(policy, spec.dimension, rows["slot"], is_kept=is_kept), rows)
        for is_kept in (True, False)
    )
    left, right = (_mix(kept_densities, left_out_densities, _LEAST / propensity) for propensity in _PROPENSITIES)
    return np.asarray(np.round(left - right, 6))


def _mix(kept_densities: Scores, left_out_densities: Scores, probability: float) -> Scores:
    """Return the log-likelihoods of reports if a contribution is kept with a probability."""
    with np.errstate(divide="ignore"):
        log_shares = math.log(probability), np.log1p(-probability)
    return np.asarray(np.logaddexp(log_shares[0] + kept_densities, log_shares[1] + left_out_densities))


def _score_releases(open_round: Callable[[], FirstRound], neighbour: int, count: int) -> Scores:
    """Attack a curator's releases with a contribution that weighing keeps, or leaves out."""
    first_round = open_round()
    policy, dimension = cast(Any, first_round.opened.step.policy), first_round.opened.spec.dimension
    left, right = (partial(_contribute, policy, dimension, is_kept=is_kept) for is_kept in (True, False))
    return attack_releases(Target(policy.terms.mechanism, (left, right)))(neighbour, count)
