"""Views of a promise's adversary on one person, scored by how much likelier they are from one of two neighbours."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from privateer_core.mechanisms import Mechanism
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.screened_moments import GRID as MOMENT_GRID
from privateer_core.mechanisms.screened_moments import Moments, ScreenedMoments
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.vectors.vector_bits import BitVectors
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.bounded_vectors import BoundedVectors, SecondMomentSums
from privateer_core.primitives.contributions import CellHits, KeyedValues
from privateer_core.primitives.public_coins import bucket, sign
from privateer_core.privacy.trust import TRUST, Trust
from privateer_core.sampling.entropy import SecureNoise
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.lower_bounds import Scores

Coins = NDArray[np.uint32]
Maker = Callable[[Coins], Any]
"""What one person contributes with each of some public coins (n,): a contribution of length n."""
_NUMBERS_AT_ONCE: Final = 4000
"""Numbers of one release, in which several people stand who have keys of their own."""
_MESSAGES_AT_ONCE: Final = 200_000
_MESSAGES_MAX: Final = 20_000
"""Larger batches are drawn from the distribution of their sums."""
_LABEL: Final = 1e-3
"""What public signs add to a score: too little to reorder scores, and enough to tell equal ones apart."""


@dataclass(frozen=True)
class Target:
    """Two neighbours, and what stands between them and the adversary."""

    mechanism: Mechanism  # the mechanism that randomizes, adds up and releases
    neighbours: tuple[Maker, Maker]  # what each of the two contributes
    # what everybody else in a batch contributes, which the adversary knows, and the people of a batch in all
    others: Maker | None = None
    people: int = 1
    arm: int = 0  # Of groups that are seen: that of the person. The adversary knows everybody's.


def view(trust: Trust) -> Callable[[Target], Sampler]:
    """Return the attack on what the adversary of a trust model sees."""
    if trust.batched:
        return batches
    return releases if trust.curated else reports


def model_of(attack: Callable[[Target], Sampler]) -> str:
    """Return the trust model with a promise whose adversary sees what is attacked."""
    return next(row.name for row in TRUST.values() if row.promises and view(row) is attack)


def mechanism_case(
    name: str,
    attack: Callable[[Target], Sampler],
    target: Target,
    claim: tuple[float, float],
    count: int,
    calibration: str = "tight",
) -> Case:
    """Return an attack on a mechanism's claim of (epsilon, delta), under the trust model whose adversary sees it."""
    row = TRUST[model_of(attack)]
    event = row.event(target.mechanism, target.people)
    assert event is not None
    kind = type(target.mechanism).__name__
    return Case(name, kind, row.name, calibration, *claim, event, attack(target), count)


def draw_coins(count: int) -> Coins:
    """Draw public coins, shape (count,), as devices do."""
    return (SecureNoise().words(count) >> np.uint64(32)).astype(np.uint32)


def reports(target: Target) -> Sampler:
    """Attack reports one by one; the adversary sees their coins."""
    mechanism = target.mechanism

    def sample(who: int, count: int) -> Scores:
        made = target.neighbours[who](draw_coins(count))
        rows = mechanism.parse(mechanism.randomize(made, SecureNoise()).tobytes())
        coins = rows["slot"] if rows.dtype.names else made.coins
        left, right = (log_likelihood(mechanism, maker(coins), rows) for maker in target.neighbours)
        return np.asarray(np.round(left - right, 6) + _public_signs(mechanism, coins))

    return sample


def _public_signs(mechanism: Mechanism, coins: Coins) -> Scores:
    """Label scores by coins, which must not depend on the record: each sign of two keys makes an event of its own."""
    if isinstance(mechanism, EventSymbol):
        return np.asarray(_LABEL * mechanism.names(coins))
    if not isinstance(mechanism, SignedSymbol):
        return np.zeros(len(coins))
    keys = np.arange(min(2, mechanism.layout.keys))
    return np.asarray(_LABEL * (sign(mechanism.layout.hashes(coins[:, None], keys)) @ 3**keys))


@singledispatch
def log_likelihood(mechanism: Any, made: Any, rows: NDArray[Any]) -> Scores:
    """Return the logarithm of each report's probability or density, but for a constant, if ``made`` was contributed.

    made: one contribution for each of the reports ``rows`` (n,), with the same coins; values are 0 or 1.
    """
    del made, rows
    raise TypeError(f"no likelihood of a report of {type(mechanism).__name__}")


@log_likelihood.register
def _vector_likelihood(mechanism: VectorSymbol, made: BoundedVectors, rows: NDArray[Any]) -> Scores:
    own = (mechanism.own(made) == rows["symbol"].astype(np.int64)[:, None]).any(axis=1)
    return np.asarray(mechanism.epsilon * own)


@log_likelihood.register
def _normal_likelihood(mechanism: GaussianVectors, made: BoundedVectors, rows: NDArray[Any]) -> Scores:
    off = rows - mechanism.ball.clip(made.values) / mechanism.ball.step
    return np.asarray(-np.square(off).sum(axis=1) / (2 * mechanism.standard_deviation**2))


@log_likelihood.register
def _symbol_likelihood(mechanism: SignedSymbol, made: KeyedValues, rows: NDArray[Any]) -> Scores:
    symbols: NDArray[np.uint16] = rows["symbol"]
    response, keyed = mechanism.response, made.keys >= 0
    hashes = mechanism.layout.hashes(made.coins, np.maximum(made.keys, 0))
    own = 2 * bucket(hashes, mechanism.buckets) + ((2 * made.values - 1) * sign(hashes) > 0)
    truth = np.where(keyed, own, 2 * mechanism.buckets)
    likely = np.where(symbols == truth, math.log(response.truth), math.log(response.other))
    return np.where(keyed | mechanism.elsewhere, likely, -math.log(response.symbols))


@log_likelihood.register
def _event_likelihood(mechanism: EventSymbol, made: KeyedValues, rows: NDArray[Any]) -> Scores:
    tells = (made.values > 0) | mechanism.names(made.coins)
    truth = np.where((made.keys >= 0) & tells, made.keys + 1, 0)
    return np.where(rows["symbol"] == truth, math.log(mechanism.response.truth), math.log(mechanism.response.other))


@log_likelihood.register
def _named_likelihood(mechanism: NamedSymbol, made: KeyedValues, rows: NDArray[Any]) -> Scores:
    symbols: NDArray[np.uint16] = rows["symbol"]
    levels = np.where(made.values > 0, mechanism.levels - 1, 0)
    response, truth = mechanism.response, mechanism.truth(made, levels)
    likely = np.where(symbols == truth, math.log(response.truth), math.log(response.other))
    return np.where(truth >= 0, likely, -math.log(response.symbols))


@log_likelihood.register
def _grouped_likelihood(mechanism: GroupedBit, made: KeyedValues, rows: NDArray[Any]) -> Scores:
    local = np.array(mechanism.epsilons)[mechanism.groups_of(made.coins)]
    own = rows["symbol"] == np.where(made.keys < 0, -1, made.values > 0)
    # People who have nothing to tell send either bit with the same probability.
    return np.where(made.keys < 0, -math.log(2), np.where(own, local, 0.0) - np.log1p(np.exp(local)))


def releases(target: Target) -> Sampler:
    """Attack a curator's releases; the adversary knows everybody else, and takes them away.

    Several people who have keys of their own stand in one release: noise is independent from number to number, so each
    of them is an observation.
    """
    if isinstance(target.mechanism, ScreenedMoments):
        return screened(target)
    mechanism, people = _widened(target.mechanism)
    none = {name: 0.0 for name in ("standard_deviation", "scale") if hasattr(mechanism, name)}
    silent: Mechanism = msgspec.structs.replace(mechanism, **none)
    coins = np.arange(people, dtype=np.uint32)

    def total(who: int) -> Any:
        made = target.neighbours[who](coins)
        if isinstance(target.mechanism, CentralSums | CellPairs):
            own = np.where(made.keys >= 0, made.keys + target.mechanism.layout.keys * np.arange(people), -1)
            made = replace(made, keys=own)
        # Not parsed: protection is the noise, even if the curator did not hold people to the ball.
        return mechanism.add(mechanism.empty(), mechanism.randomize(made, SecureNoise()))

    exact = [released_numbers(silent.release(total(who), SecureNoise()), people) for who in (0, 1)]

    def sample(who: int, count: int) -> Scores:
        added, scores = total(who), []
        for _ in range(-(-count // people)):
            seen = released_numbers(mechanism.release(added, SecureNoise()), people)
            scores.append(noise_density(mechanism, seen - exact[0]) - noise_density(mechanism, seen - exact[1]))
        return np.concatenate(scores)[:count]

    return sample


def screened(target: Target) -> Sampler:
    """Attack releases that choose features: as likely as the choices, one after the other, times the block's noise.

    Everybody else is in the sums, and the adversary knows their records, which are the same beside either neighbour.
    """
    mechanism = target.mechanism
    assert isinstance(mechanism, ScreenedMoments)
    known = mechanism.empty()
    if target.others and target.people > 1:
        others = target.others(np.zeros(target.people, np.uint32))
        known = mechanism.add(known, mechanism.randomize(others, SecureNoise()))

    def total(who: int) -> Moments:
        return mechanism.add(known, mechanism.randomize(target.neighbours[who](np.zeros(1, np.uint32)), SecureNoise()))

    totals = [total(who) for who in (0, 1)]
    scores = [mechanism.scores(one) / mechanism.scale if mechanism.screened else np.zeros(0) for one in totals]
    blocks: dict[tuple[int, ...], list[NDArray[np.float64]]] = {}

    def likelihood(who: int, release: SecondMomentSums) -> float:
        chosen, left = release.chosen.tolist(), mechanism.candidates
        if tuple(chosen) not in blocks:
            blocks[tuple(chosen)] = [mechanism.block(one, chosen) / MOMENT_GRID**2 for one in totals]
        found = 0.0
        for one in chosen:
            found += float(scores[who][one] - logsumexp(scores[who][left]))
            left = left[left != one]
        upper = np.triu_indices(len(release.moments))
        off = (release.moments - blocks[tuple(chosen)][who])[upper] ** 2 / release.variances[upper]
        return found - float(off.sum()) / 2

    def sample(who: int, count: int) -> Scores:
        released = (mechanism.release(totals[who], SecureNoise()) for _ in range(count))
        return np.array([likelihood(0, one) - likelihood(1, one) for one in released])

    return sample


def _widened(mechanism: Mechanism) -> tuple[Mechanism, int]:
    """Return the mechanism with keys for several people, and how many."""
    if not isinstance(mechanism, CentralSums | CellPairs):
        return mechanism, 1
    layout = mechanism.layout
    people = max(1, _NUMBERS_AT_ONCE // max(1, layout.keys * (layout.groups + 1)))
    wide = replace(layout, thresholds=np.tile(layout.thresholds, (people, 1)))
    return msgspec.structs.replace(mechanism, layout=wide), people


def released_numbers(release: Any, people: int) -> NDArray[np.float64]:
    """Return everything private in a release, shape (people, numbers)."""
    if isinstance(release, CellHits):
        parts = [*sums_of_parts(release)]
    else:
        parts = [release.sums] + ([release.hits] if hasattr(release, "hits") else [])
    return np.concatenate([part.reshape(people, -1) for part in parts], axis=1)


def sums_of_parts(release: CellHits) -> NDArray[np.float64]:
    """Return the sums whose noise is independent, (P, keys, groups): of each part of values, the last first.

    Where a number stands beside the value they are those of products of parts.
    """
    if release.products is not None:
        return release.products.reshape(-1, *release.hits.shape)
    if release.squares is None:
        return np.stack([release.positive, release.hits - release.positive])
    moments = np.stack([release.positive, release.hits, release.squares])
    return np.asarray(np.tensordot(np.linalg.inv(release.parts.moments), moments, 1)[::-1])


def noise_density(mechanism: Mechanism, noise: NDArray[np.float64]) -> Scores:
    """Return the logarithm of the density of noise (n, numbers), but for a constant."""
    if isinstance(mechanism, CentralSums | CellPairs) and mechanism.scale:
        return np.asarray(-np.abs(noise).sum(axis=1) / mechanism.scale)
    assert isinstance(mechanism, CentralSums | CentralVectors)
    unit = mechanism.ball.step if isinstance(mechanism, CentralVectors) else 1.0
    return np.asarray(-np.square(noise).sum(axis=1) / (2 * (mechanism.standard_deviation * unit) ** 2))


def batches(target: Target) -> Sampler:
    """Attack permuted batches; the adversary knows everybody else of a batch."""
    if isinstance(target.mechanism, BitVectors):
        few = target.mechanism.messages * target.people <= _MESSAGES_MAX
        score = _summed_bits if few else _simulated_bits
    else:
        score = _permuted
    at_once = max(1, min(2000, _MESSAGES_AT_ONCE // (target.people * target.mechanism.messages)))

    def sample(who: int, count: int) -> Scores:
        steps = [min(at_once, count - start) for start in range(0, count, at_once)]
        return np.concatenate([score(target, who, step) for step in steps])

    return sample


def _permuted(target: Target, who: int, count: int) -> Scores:
    """Score batches of a few messages a person.

    With the order gone, a batch is as likely under a person as the mean, over every choice of so many of its messages,
    of how much likelier these are from that person than from the others. No order enters this score; places are
    attacked along the wire.
    """
    assert target.others is not None
    mechanism, others = target.mechanism, target.others
    one = mechanism.randomize(target.neighbours[who](_own_coins(target, count)), SecureNoise())
    rest = mechanism.randomize(others(draw_coins(count * (target.people - 1))), SecureNoise())
    batch = np.concatenate([one.reshape(count, -1), rest.reshape(count, -1)], axis=1).ravel()
    rows = mechanism.parse(batch.tobytes())
    known = log_likelihood(mechanism, others(rows["slot"]), rows)
    left, right = (
        _chosen(
            np.exp(log_likelihood(mechanism, maker(rows["slot"]), rows) - known).reshape(count, -1)
            * _may_be_own(target, rows).reshape(count, -1),
            mechanism.messages,
        )
        for maker in target.neighbours
    )
    # Sums differ in their last digits by the order of reports, which must not split equal scores.
    return np.asarray(np.round(np.log(left / right), 9))


def _own_coins(target: Target, count: int) -> Coins:
    """Draw coins of the person's arm, where arms are seen; else any."""
    if not isinstance(target.mechanism, GroupedBit):
        return draw_coins(count)
    found = np.zeros(0, np.uint32)
    while len(found) < count:
        coins = draw_coins(4 * count)
        found = np.append(found, coins[target.mechanism.groups_of(coins) == target.arm])
    return found[:count]


def _may_be_own(target: Target, rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Which reports of batches may be the person's: where arms are seen, those of the person's arm."""
    if not isinstance(target.mechanism, GroupedBit):
        return np.ones(len(rows), np.bool_)
    return np.asarray(target.mechanism.groups_of(rows["slot"]) == target.arm)


def _chosen(factors: NDArray[np.float64], messages: int) -> NDArray[np.float64]:
    """Return the sum, over every choice of so many of a row's factors (n, all), of their products; shape (n,)."""
    sums = np.zeros((messages + 1, len(factors)))
    sums[0] = 1.0
    for factor in factors.T:
        sums[1:] += sums[:-1] * factor
    return np.asarray(sums[messages])


def _summed_bits(target: Target, who: int, count: int) -> Scores:
    """Score the sums of batches of bits, message by message."""
    assert target.others is not None
    mechanism, size = target.mechanism, target.people
    values = target.others(draw_coins(count * size)).values.reshape(count, size, -1)
    values[:, 0] = target.neighbours[who](draw_coins(count)).values
    made = BoundedVectors(np.zeros(count * size, np.uint32), values.reshape(count * size, -1))
    messages = mechanism.randomize(made, SecureNoise()).reshape(count, -1)
    totals = [mechanism.add(mechanism.empty(), batch) for batch in messages]
    return _linear(target, [mechanism.release(total, SecureNoise()) for total in totals])


def _simulated_bits(target: Target, who: int, count: int) -> Scores:
    """Score the sums of batches that have too many bits to be sent here."""
    assert target.others is not None
    values = target.others(np.zeros(target.people, np.uint32)).values
    values[0] = target.neighbours[who](np.zeros(1, np.uint32)).values[0]
    batch, rng = BoundedVectors(np.zeros(target.people, np.uint32), values), np.random.default_rng()
    return _linear(target, [target.mechanism.simulate(batch, rng) for _ in range(count)])


def _linear(target: Target, released: list[Any]) -> Scores:
    """Project sums on the difference of the neighbours, weighted as if noise was normal."""
    assert isinstance(target.mechanism, BitVectors)
    ends = [maker(np.zeros(1, np.uint32)).values for maker in target.neighbours]
    left, right = (target.mechanism.ball.clip(end)[0] for end in ends)
    sums = np.array([release.sums for release in released])
    return np.asarray(sums @ (left - right) / released[0].noise)
