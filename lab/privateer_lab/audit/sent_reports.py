"""Attacks on the path from the client library's sealed reports to the opened ones, for each algorithm and model."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Final

import numpy as np

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Gaussian
from privateer_core.privacy.trust import TIGHT
from privateer_lab.audit.case import DELTA, Case
from privateer_lab.audit.first_rounds import LIMITS, FirstRound
from privateer_lab.audit.law import Scores
from privateer_lab.audit.views import draw_coins, log_likelihood
from privateer_lab.audit.whole_experiments import iterate_tight_claims, make_contributions, observe_outcomes

_LIMITS: Final = replace(LIMITS, delta=1.0)
_MIN_REPORTS, _MAX_REPORTS, _SAMPLES_PER_REPORT = 100, 3000, 20
_CONTEXT, _REWARD_FACTORS = 0.1, (1.0, -1.0)
"""Value of all features of both neighbours, and their rewards in half-ranges from the middle."""


def path_cases(samples: int, algorithms: set[str] | None = None) -> list[Case]:
    """Build an attack on the first round's opened reports for each instance whose report has a claim of its own."""
    cases, count = [], min(_MAX_REPORTS, max(_MIN_REPORTS, samples // _SAMPLES_PER_REPORT))
    for name, instance, spec, terms in iterate_tight_claims(algorithms):
        event = terms.mechanism.report_event
        if event is None:
            continue
        delta = DELTA if isinstance(event, Gaussian) else 0.0
        claim = (spec.privacy.model, TIGHT, account(event).epsilon(delta), delta, event)
        sample = partial(_score_reports, cache(partial(FirstRound.open, spec)))
        cases.append(Case(f"sealed reports, {instance}", name, *claim, sample, count))
    return cases


def _score_reports(open_round: Callable[[], FirstRound], neighbour: int, count: int) -> Scores:
    """Let a neighbour report through the client library, open the reports, and return their log-likelihood ratios."""
    first_round = open_round()
    participation, spec, policy = first_round.join(_LIMITS), first_round.opened.spec, first_round.opened.step.policy
    contexts, coins = np.full((count, spec.dimension), _CONTEXT), participation.draw_coins(count)
    outcomes = observe_outcomes(spec, policy, contexts, coins, _REWARD_FACTORS[neighbour])
    rows = first_round.open_reports(participation.make_reports(contexts, coins, *outcomes))
    row_coins = rows["slot"] if rows.dtype.names else draw_coins(len(rows))
    row_contexts = np.full((len(rows), spec.dimension), _CONTEXT)
    left, right = (
        log_likelihood(policy.terms.mechanism, make_contributions(spec, policy, row_contexts, row_coins, factor), rows)
        for factor in _REWARD_FACTORS
    )
    return np.asarray(np.round((left - right).reshape(count, -1).sum(axis=1), 6))
