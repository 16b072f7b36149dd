"""Attack on the coins of sent reports: they must be those that the device drew, and uniform whatever the record.

Reports of some mechanisms contain none. There the coins of the choice, which decide the arm that others may see, must
be uniform.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Final, NamedTuple

import numpy as np

from privateer_client.client import Client
from privateer_client.participation import Participation
from privateer_core.errors import InvalidValueWarning
from privateer_core.primitives.public_coins import coin_classes
from privateer_core.privacy.trust import TIGHT
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import decode_envelope
from privateer_lab.audit.case import Integers, MechanismPart
from privateer_lab.audit.first_rounds import LIMITS, FirstRound, MemoryServer
from privateer_lab.audit.law import Scores, counts_p_value
from privateer_lab.audit.views import Coins
from privateer_lab.audit.watched_services import make_memory_ledger
from privateer_lab.audit.whole_experiments import iterate_tight_claims

PART_NAME: Final = "coins of sent reports"
_COIN_FIELD: Final = "slot"
_MIN_REPORTS, _MAX_REPORTS, _SAMPLES_PER_REPORT = 100, 400, 500
"""Bounds of a neighbour's reports to a round, and the samples of an audit for each of them.

An audit of 125,000 samples and more calls a device broken with a probability of at least 0.99 if it sends the larger of
two draws for one neighbour. With 100 reports it catches coins that are the same for the same record.
"""
_FIELD_BITS: Final = 8
_N_KEYS: Final = 3
"""Keys whose public hashes, which have the question, bucket and group of a report, are fields of its coins."""
_CELL_BITS: Final = (1, 2, 4)
"""Numbers of leading bits of a field that are counted, in cells of equal probability."""


class SentCoins(NamedTuple):
    """The coins of a device's reports to one round."""

    handed: Coins  # shape (n,): coins that the device drew for each report; fewer if it drew more or less often
    # shape (n, messages): coins of the opened messages; where reports contain none, those of the choice, shape (n, 1)
    opened: Coins
    fields: Integers  # shape (n, fields): bytes of these coins, and of the public hashes that they decide


def coin_parts(samples: int, algorithms: set[str]) -> list[MechanismPart]:
    """Return a part for each algorithm and trust model; only the law is claimed."""
    count = min(_MAX_REPORTS, max(_MIN_REPORTS, samples // _SAMPLES_PER_REPORT))
    specs_by_claim = defaultdict[tuple[str, str], list[Spec]](list)
    for name, _, spec, _ in iterate_tight_claims(algorithms):
        specs_by_claim[name, spec.privacy.model].append(spec)
    parts = []
    for (name, model), specs in sorted(specs_by_claim.items()):
        observe = partial(_observe_coins, cache(partial(_open_rounds, specs)))
        laws = (None, 0.0, observe, _score_nothing, _p_value)
        parts.append(MechanismPart(PART_NAME, name, model, TIGHT, "", *laws, count))
    return parts


def _score_nothing(observations: list[SentCoins]) -> Scores:
    return np.zeros(len(observations))


def _open_rounds(specs: list[Spec]) -> list[FirstRound]:
    """Open a first round of each kind of report: by its mechanism, its messages, and whose coins it has."""
    rounds = dict[tuple[type, int, bool], FirstRound]()
    for first_round in map(FirstRound.open, specs):
        mechanism, policy = first_round.opened.mechanism, first_round.opened.step.policy
        rounds.setdefault((type(mechanism), mechanism.messages, policy.has_fresh_coins), first_round)
    return list(rounds.values())


def _observe_coins(open_rounds: Callable[[], list[FirstRound]], neighbour: int, count: int) -> list[SentCoins]:
    """Observe a neighbour's reports to each kind of round."""
    return [_observe_round(first_round, neighbour, count) for first_round in open_rounds()]


def _observe_round(first_round: FirstRound, neighbour: int, count: int) -> SentCoins:
    """Let a neighbour choose and report ``count`` times through the client library, and open the reports."""
    spec, server, handed = first_round.opened.spec, MemoryServer(first_round.opened), list[Coins]()
    context, reward = make_context(spec, neighbour), spec.reward.middle + (2 * neighbour - 1) * spec.reward.half_range
    policy, mechanism = first_round.opened.step.policy, first_round.opened.mechanism
    has_coins = _COIN_FIELD in (getattr(mechanism, "message", np.dtype(np.uint8)).names or ())
    # The number of a participant whom the round invites, if it draws participants.
    ledger = make_memory_ledger(int(policy.draw.select_participants()[0]) if policy.draw else None)
    with (
        warnings.catch_warnings(action="ignore", category=InvalidValueWarning),
        _record_draws() as draws,
        Client("http://server", shuffler="http://shuffler", limits=LIMITS, ledger=ledger, transport=server) as client,
    ):
        session = client.join(spec.name)
        for _ in range(count):
            draws.clear()
            outcome = spec.without_outcome(session.choose(context, fresh=not has_coins))
            if has_coins:
                session.report(dict.fromkeys(outcome, reward) if isinstance(outcome, Mapping) else reward)
            handed += draws[-1:] if len(draws) == 1 + (has_coins and policy.has_fresh_coins) else []
    drawn = np.concatenate([np.zeros(0, np.uint32), *handed])
    if has_coins:
        rows = first_round.open_reports(decode_envelope(body).sealed for body in server.uploads)
        opened = rows[_COIN_FIELD].astype(np.uint32).reshape(count, mechanism.messages)
    else:
        opened = np.pad(drawn, (0, count - len(drawn)))[:, None]
    return SentCoins(drawn, opened, _split_messages(mechanism, opened))


def make_context(spec: Spec, neighbour: int) -> dict[str, Any]:
    """Return the context of neighbour 0 or 1: the first or last value of each feature, and unknown covariates."""
    context: dict[str, Any] = dict.fromkeys(spec.reward.covariates)
    for name, feature in spec.features.items():
        ends = np.zeros(feature.columns), np.ones(feature.columns)
        context[name] = [value for value in feature.list_box_values(*ends) if value is not None][-neighbour]
    return context


@contextmanager
def _record_draws() -> Iterator[list[Coins]]:
    """Record the coins that devices draw within the block."""
    draws, draw_coins = list[Coins](), Participation.draw_coins

    def draw_and_record(participation: Participation, n_participants: int) -> Coins:
        draws.append(draw_coins(participation, n_participants))
        return draws[-1]

    Participation.draw_coins = draw_and_record  # type: ignore[method-assign, assignment]
    try:
        yield draws
    finally:
        Participation.draw_coins = draw_coins  # type: ignore[method-assign]


def _split_messages(mechanism: Any, coins: Coins) -> Integers:
    """Return the fields of each message's coins, (n, fields), and of differences, since equal coins link messages."""
    differences = [_split_bytes(step) for step in np.diff(coins, axis=1).T]
    return np.concatenate([split_fields(mechanism, message) for message in coins.T] + differences, axis=1)


def _split_bytes(coins: Coins) -> Integers:
    fields = coins.astype("<u4")[:, None] >> np.arange(0, 32, _FIELD_BITS, dtype=np.uint32)
    return np.asarray(fields % (1 << _FIELD_BITS), np.int64)


def split_fields(mechanism: Any, coins: Coins) -> Integers:
    """Return the bytes of coins (n,), and of the public hashes that they decide in a round, (n, fields)."""
    fields = [_split_bytes(coins)]
    if hasattr(mechanism, "layout"):
        words = mechanism.layout.hashes(coins[:, None], np.arange(min(_N_KEYS, mechanism.layout.keys)))
        shifts = (64 - _FIELD_BITS, 56 - _FIELD_BITS, 16 - _FIELD_BITS)
        fields += [(words >> np.uint64(shift)) % np.uint64(1 << _FIELD_BITS) for shift in shifts]
    elif hasattr(mechanism, "seed"):
        fields.append(coin_classes(coins, mechanism.seed, 1 << _FIELD_BITS)[:, None])
    return np.concatenate([np.asarray(field, np.int64) for field in fields], axis=1)


def _p_value(neighbour: int, observations: list[SentCoins]) -> float:
    """Return the p-value of uniform fields, over all rounds; 0 if coins are not those that the device drew."""
    del neighbour
    if not all(np.array_equal(coins.handed, coins.opened[:, 0]) for coins in observations):
        return 0.0
    cell_counts = [
        (np.bincount(field >> (_FIELD_BITS - bits), minlength=1 << bits), np.full(1 << bits, 0.5**bits))
        for coins in observations
        for field in coins.fields.T
        for bits in _CELL_BITS
    ]
    return min(1.0, len(cell_counts) * min(counts_p_value(*counts) for counts in cell_counts))
