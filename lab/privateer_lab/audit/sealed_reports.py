"""Attacks on the report path, from the client library's sealed reports to the reports that the server opens.

Single reports are those of each algorithm and trust model, and batches those of one experiment.
"""

import asyncio
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Gaussian
from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.policies.policy import Arms
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.trust import TIGHT, TRUST, Crowd
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import decode_envelope, split_sealed
from privateer_lab.audit.case import DELTA, Case
from privateer_lab.audit.first_rounds import WIDE_LIMITS, FirstRound, count_reports
from privateer_lab.audit.law import Scores
from privateer_lab.audit.views import attack_batches as batch_view
from privateer_lab.audit.views import attack_reports as report_view
from privateer_lab.audit.views import draw_coins, log_likelihood, model_for
from privateer_lab.audit.whole_experiments import build_decisions_and_rewards, iterate_tight_claims, make_contributions
from privateer_server.rounds.open_round import OpenRound
from privateer_shuffler.pool.placed_round import PlacedRound
from privateer_shuffler.pool.pool import Label, Pool
from privateer_shuffler.pool.round_file import RoundStore

SINGLE_REPORT_MODEL, BATCH_MODEL = model_for(report_view), model_for(batch_view)
"""Trust models whose reports are attacked as single reports, and as batches."""
_BATCH_ROUND = (BATCH_MODEL, "hidden")
"""Arguments for a round with two symbols, for which few batches give the largest lower bounds."""
_EPSILON, _DELTA = 1.0, 0.01
_BATCH_SIZE = 100
_N_CONCURRENT_BATCHES = 20
_CONTEXT_VALUE = 0.3
_REWARDS = (1.0, 0.0)
"""The two neighbours' rewards, in the same bin: the worst pair of a signed symbol."""
_CONTEXT, _REWARD_FACTORS = 0.1, (1.0, -1.0)
"""Value of all features of both neighbours, and their rewards in half-ranges from the middle."""


def audit_spec(model: str, visibility: str = "visible") -> Spec:
    """Build the spec of the audited experiment: of the first contextual algorithm that asks for keyed means."""
    kinds = [algorithm(name).spec for name in ALGORITHMS]
    keyed_classes = [kind for kind in kinds if issubclass(kind, ArmsSpec) and kind.question is KeyedMeans]
    examples = (next(iter(kind.instances().values())) for kind in keyed_classes)
    tables = next(example for example in examples if example.dimension).model_dump(mode="json", exclude_none=True)
    tables["experiment"] |= {"name": "audit", "arms": ["a", "b"], "horizon": 100_000, "round_size": _BATCH_SIZE}
    tables["context"] = {"features": {"x": {"low": 0.0, "high": 1.0}}}
    tables["privacy"] = {"model": model, "arm_visibility": visibility, **TRUST[model].example}
    if TRUST[model].promises:
        tables["privacy"]["epsilon"] = _EPSILON
    if TRUST[model].crowd is Crowd.BATCH:
        tables["privacy"] |= {"delta": _DELTA, "min_batch": _BATCH_SIZE, "honest_fraction": 1.0}
    return parse_spec(tables)


@cache
def open_audit_round(model: str, visibility: str = "visible") -> FirstRound:
    """Open a first round of the audited experiment."""
    return FirstRound.open(audit_spec(model, visibility))


def wire_cases(samples: int) -> list[Case]:
    """Build the attacks on single sealed reports and on batches of them."""
    report_terms = open_audit_round(SINGLE_REPORT_MODEL).opened.step.policy.terms
    batch_terms = open_audit_round(*_BATCH_ROUND).opened.step.policy.terms
    batches, count = cache(_score_batches), max(160, samples // 500)

    def batch_case(name: str, statistic: int) -> Case:
        def sample(neighbour: int, n_batches: int) -> Scores:
            return np.asarray(batches(neighbour, n_batches)[:, statistic])

        return Case.from_terms(name, batch_terms, sample, count)

    score_reports = partial(_score_reports, partial(open_audit_round, SINGLE_REPORT_MODEL))
    single_reports = Case.from_terms("sealed reports", report_terms, score_reports, samples // 20)
    return [single_reports, batch_case("first place of a batch", 0), batch_case("agreements in a batch", 1)]


def _seal_reports(first_round: FirstRound, rewards: Scores) -> list[bytes]:
    """Seal the reports of participants who all play the first arm visibly."""
    participation, arms = first_round.join(), Arms(np.zeros(len(rewards), np.int64))
    coins = participation.draw_coins(len(rewards))
    return participation.make_reports(np.full((len(rewards), 1), _CONTEXT_VALUE), coins, arms, rewards)


def _score_opened_reports(first_round: FirstRound, sealed: list[bytes]) -> Scores:
    """Open sealed reports as the server does, and return the log-likelihood ratio of each report."""
    policy, reports = first_round.opened.step.policy, first_round.open_reports(sealed)
    contexts, arms = np.full((len(reports), 1), _CONTEXT_VALUE), Arms(np.zeros(len(reports), np.int64))
    rewards = (np.full(len(reports), reward) for reward in _REWARDS)
    contributions = (policy.contribute(contexts, reports["slot"], arms, reward) for reward in rewards)
    left, right = (log_likelihood(policy.terms.mechanism, contribution, reports) for contribution in contributions)
    return np.asarray(np.round(left - right, 6))


def _score_batches(neighbour: int, count: int) -> Scores:
    """Shuffle batches with the target first, and return the scores of the first place and of all places, (count, 2)."""
    first_round = open_audit_round(*_BATCH_ROUND)
    rewards = (np.arange(_BATCH_SIZE) % 2).astype(float)
    rewards[0] = _REWARDS[neighbour]
    scores: list[tuple[float, float]] = []
    while len(scores) < count:
        sealed = [_seal_reports(first_round, rewards) for _ in range(min(_N_CONCURRENT_BATCHES, count - len(scores)))]
        for permuted in asyncio.run(_shuffle_batches(first_round.opened, sealed)):
            scores_by_place = _score_opened_reports(first_round, permuted)
            scores.append((float(scores_by_place[0]), round(float(scores_by_place.sum()), 6)))
    return np.array(scores)


async def _shuffle_batches(open_round: OpenRound, batches: list[list[bytes]]) -> list[list[bytes]]:
    """Shuffle batches concurrently, each in its own pool, since a pool mostly waits for the disk."""
    return await asyncio.gather(*(_shuffle_batch(open_round, sealed) for sealed in batches))


async def _shuffle_batch(open_round: OpenRound, sealed: list[bytes]) -> list[bytes]:
    """Pass sealed reports through a shuffler's pool, which then erases them; return the batch's reports."""
    with tempfile.TemporaryDirectory(prefix="privateer-audit-") as folder:
        label = Label(open_round.round, open_round.digest)
        pool = Pool(PlacedRound(await asyncio.to_thread(RoundStore.create, Path(folder), label)))
        await pool.hold(sealed)
        batch = await pool.read_batch()
        await pool.forget()
    return split_sealed(decode_envelope(batch), open_round.round)


def path_cases(samples: int, algorithms: set[str] | None = None) -> list[Case]:
    """Build an attack on the first round's opened reports for each instance whose report has a claim of its own."""
    cases, count = [], count_reports(samples)
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
    participation, spec, policy = first_round.join(WIDE_LIMITS), first_round.opened.spec, first_round.opened.step.policy
    contexts, coins = np.full((count, spec.dimension), _CONTEXT), participation.draw_coins(count)
    outcomes = build_decisions_and_rewards(spec, policy, contexts, coins, _REWARD_FACTORS[neighbour])
    rows = first_round.open_reports(participation.make_reports(contexts, coins, *outcomes))
    row_coins = rows["slot"] if rows.dtype.names else draw_coins(len(rows))
    row_contexts = np.full((len(rows), spec.dimension), _CONTEXT)
    left, right = (
        log_likelihood(policy.terms.mechanism, make_contributions(spec, policy, row_contexts, row_coins, factor), rows)
        for factor in _REWARD_FACTORS
    )
    return np.asarray(np.round((left - right).reshape(count, -1).sum(axis=1), 6))
