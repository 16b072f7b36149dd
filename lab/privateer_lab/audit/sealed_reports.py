"""Attacks on the report path, from the client library's sealed reports to the reports that the server opens.

Single reports are those of each algorithm and trust model, and batches those of each algorithm that has them.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_client.participation import Participation
from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Gaussian
from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.trust import TIGHT, TRUST, Crowd
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Round, decode_envelope, split_sealed
from privateer_lab.audit.case import DELTA, Case
from privateer_lab.audit.first_rounds import FirstRound, count_reports
from privateer_lab.audit.law import Scores
from privateer_lab.audit.likelihoods import log_likelihood
from privateer_lab.audit.views import Target, draw_coins, draw_target_coins, model_for, score_batches
from privateer_lab.audit.views import attack_reports as report_view
from privateer_lab.audit.whole_experiments import (
    OPPOSITE_REWARDS,
    OTHER_PARTICIPANT,
    build_target,
    iterate_tight_claims,
    observe_choices,
)
from privateer_server.rounds.open_round import OpenRound
from privateer_shuffler.pool.placed_round import PlacedRound
from privateer_shuffler.pool.pool import Label, Pool
from privateer_shuffler.pool.round_file import RoundStore

SINGLE_REPORT_MODEL: Final = model_for(report_view)
"""The trust model whose single reports are attacked."""
_BATCH_SIZE: Final = 100
_BATCH_PROMISE: Final = {"epsilon": 1.0, "delta": 0.1, "honest_fraction": 1.0}
"""A promise of batches that is broken without a permutation: each report tells much more, up to the largest limit."""
_LOCAL_EPSILON_MAX: Final = 12.0
_N_CONCURRENT_BATCHES: Final = 20
_ROUNDS: Final = 15
_MIN_BATCHES, _PROVING_BATCHES, _SAMPLES_PER_BATCH, _MAX_MESSAGES = 40, 160, 625, 64_000
"""Fewest batches of each neighbour, those with which a lost permutation is proved, samples of an audit for each batch,
and messages above which there are no more than those."""


def audit_spec(model: str) -> Spec:
    """Build the spec of the audited experiment: of the first contextual algorithm that asks for keyed means."""
    kinds = [algorithm(name).spec for name in ALGORITHMS]
    keyed_classes = [kind for kind in kinds if issubclass(kind, ArmsSpec) and kind.question is KeyedMeans]
    examples = (next(iter(kind.instances().values())) for kind in keyed_classes)
    tables = next(example for example in examples if example.dimension).model_dump(mode="json", exclude_none=True)
    tables["experiment"] |= {"name": "audit", "arms": ["a", "b"], "horizon": 100_000, "round_size": _BATCH_SIZE}
    tables["context"] = {"features": {"x": {"low": 0.0, "high": 1.0}}}
    tables["privacy"] = {"model": model, **TRUST[model].example}
    if TRUST[model].promises:
        tables["privacy"]["epsilon"] = _BATCH_PROMISE["epsilon"]
    if TRUST[model].crowd is Crowd.BATCH:
        tables["privacy"] |= {"min_batch": _BATCH_SIZE, **_BATCH_PROMISE}
    return parse_spec(tables)


@cache
def open_audit_round(model: str) -> FirstRound:
    """Open a first round of the audited experiment."""
    return FirstRound.open(audit_spec(model))


def wire_cases(samples: int) -> list[Case]:
    """Build the attack on single sealed reports of the audited experiment."""
    terms = open_audit_round(SINGLE_REPORT_MODEL).opened.step.policy.terms
    sample = partial(_score_reports, partial(open_audit_round, SINGLE_REPORT_MODEL))
    return [Case.from_terms("sealed reports", terms, sample, samples // 20)]


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
    participation, spec, policy = first_round.join(), first_round.opened.spec, first_round.opened.step.policy
    choices = observe_choices(spec, policy, OPPOSITE_REWARDS[neighbour], participation.draw_coins(count))
    rows = first_round.open_reports(participation.make_reports(*choices))
    coins = rows["slot"] if rows.dtype.names else draw_coins(len(rows))
    neighbours = build_target(spec, policy, OPPOSITE_REWARDS).neighbours
    left, right = (log_likelihood(policy.terms.mechanism, maker(coins), rows) for maker in neighbours)
    return np.asarray(np.round((left - right).reshape(count, -1).sum(axis=1), 6))


def batch_cases(samples: int, algorithms: set[str] | None = None) -> list[Case]:
    """Build attacks on batches of every kind of shuffled report, from the client library to the opened messages.

    The score of a whole batch ignores the order of its messages. That of the first places is of the messages which
    would be the target's if the shuffler kept the order of arrival.
    """
    return [case for facts in _iterate_batches(algorithms) for case in _make_batch_cases(samples, *facts)]


def _iterate_batches(algorithms: set[str] | None) -> Iterator[tuple[str, str, FirstRound]]:
    """Yield algorithm, instance and first round of each kind of shuffled report of an algorithm, in small batches."""
    kinds = set[tuple[str, type, bool, str]]()
    for name, instance, spec, terms in iterate_tight_claims(algorithms):
        kind = (name, type(terms.mechanism), terms.mechanism.messages > 1, spec.privacy.arm_visibility)
        if spec.privacy.trust.crowd is Crowd.BATCH and kind not in kinds:
            kinds.add(kind)
            yield name, instance, FirstRound.open(_shrink_batches(spec))


def _shrink_batches(spec: Spec) -> Spec:
    """Return the spec with small batches, if it states their size."""
    tables = spec.model_dump(mode="json", exclude_none=True)
    tables["privacy"] |= _BATCH_PROMISE
    if "local_epsilon_max" not in spec.capabilities.idle_keys:
        tables["privacy"]["local_epsilon_max"] = _LOCAL_EPSILON_MAX
    if "round_size" in tables["experiment"]:
        tables["experiment"] |= {"horizon": _ROUNDS * _BATCH_SIZE, "round_size": _BATCH_SIZE}
        tables["privacy"]["min_batch"] = _BATCH_SIZE
    return parse_spec(tables)


def _make_batch_cases(samples: int, name: str, instance: str, first_round: FirstRound) -> Iterator[Case]:
    """Make the cases of one kind of report, which share their batches."""
    privacy, event = first_round.opened.spec.privacy, first_round.opened.step.policy.terms.event
    round_, score = first_round.opened.round, cache(partial(_score_batches, first_round))
    max_batches = max(_PROVING_BATCHES, _MAX_MESSAGES // (round_.batch_size * round_.messages))
    count = max(_MIN_BATCHES, min(samples // _SAMPLES_PER_BATCH, max_batches))

    def sample(column: int, neighbour: int, n_batches: int) -> Scores:
        return np.asarray(score(neighbour, n_batches)[:, column])

    assert event is not None
    for column, attack in enumerate(("first places of a batch", "batch")):
        claim = (privacy.model, TIGHT, privacy.bound, privacy.delta, event)
        yield Case(f"{attack} of sealed reports, {instance}", name, *claim, partial(sample, column), count)


def _score_batches(first_round: FirstRound, neighbour: int, count: int) -> Scores:
    """Shuffle batches with the target first, and return the scores of the first places and of all, (count, 2)."""
    opened, participation = first_round.opened, first_round.join()
    target, places = build_target(opened.spec, opened.step.policy, OPPOSITE_REWARDS), _first_places(opened.round)
    scores: list[Scores] = []
    while (n_left := count - sum(map(len, scores))) > 0:
        sealed = [
            _seal_batch(participation, opened, target, neighbour) for _ in range(min(_N_CONCURRENT_BATCHES, n_left))
        ]
        shuffled = asyncio.run(_shuffle_batches(opened, sealed))
        batches = np.stack([first_round.open_reports(batch).ravel() for batch in shuffled])
        scores.append(np.stack([score_batches(target, batches[:, places]), score_batches(target, batches)], axis=1))
    return np.concatenate(scores)


def _first_places(round_: Round) -> NDArray[np.int64]:
    """Return the places of the first participant's messages, if the order of arrival is kept within each kind."""
    first_of_kind = round_.batch_size * round_.messages_of_kind * np.arange(round_.groups)
    return np.asarray((first_of_kind[:, None] + np.arange(round_.messages_of_kind)).ravel())


def _seal_batch(participation: Participation, opened: OpenRound, target: Target, neighbour: int) -> list[bytes]:
    """Seal the reports of a neighbour and of all other participants of a batch."""
    n_others = opened.round.batch_size - 1
    people = {OPPOSITE_REWARDS[neighbour]: draw_target_coins(target, 1), OTHER_PARTICIPANT: draw_coins(n_others)}
    choices = [observe_choices(opened.spec, opened.step.policy, person, coins) for person, coins in people.items()]
    return [report for each in choices for report in participation.make_reports(*each)]


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
