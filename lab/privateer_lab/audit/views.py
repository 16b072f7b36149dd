"""Adversaries' observations of one participant, scored by the likelihood ratio of two neighbours."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from privateer_core.mechanisms import Mechanism
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.screened_moments import GRID as MOMENT_GRID
from privateer_core.mechanisms.screened_moments import ScreenedMoments
from privateer_core.mechanisms.server_noise import STEPS, ServerNoise, join_shares
from privateer_core.mechanisms.shared_votes import SharedVotes
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.tiered_symbol import TieredSymbol
from privateer_core.mechanisms.vectors.vector_bits import BitVectors
from privateer_core.mechanisms.vectors.vector_noise import CuratedSums
from privateer_core.primitives.bounded_vectors import BoundedVectors, SecondMomentSums
from privateer_core.primitives.contributions import CellHits
from privateer_core.primitives.public_coins import hash_to_sign
from privateer_core.privacy.trust import TRUST, Crowd, NoiseOrigin, Trust
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.law import Scores
from privateer_lab.audit.likelihoods import log_likelihood

Coins = NDArray[np.uint32]
Contributor = Callable[[Coins], Any]
"""Function from public coins (n,) to a participant's n contributions with these coins."""
_NUMBERS_PER_RELEASE: Final = 4000
"""Numbers of one release, in which several independent participants have keys of their own."""
_MESSAGES_PER_CHUNK: Final = 200_000
_MAX_MESSAGES_PER_BATCH: Final = 20_000
"""Messages of a batch above which its sums are simulated."""
_LABEL_STEP: Final = 1e-3
"""Score difference by which equal scores with different public signs are told apart."""


@dataclass(frozen=True)
class Target:
    """Two neighbours, and the mechanism and batch that protect them from the adversary."""

    mechanism: Mechanism  # the mechanism that randomizes, adds up and releases
    neighbours: tuple[Contributor, Contributor]
    # contributor of all other participants of a batch, whom the adversary knows, and the batch size
    others: Contributor | None = None
    n_participants: int = 1
    arm: int = 0  # of groups that are seen: the target's group; the adversary knows all groups


Attack = Callable[[Target], Sampler]
"""Function from two neighbours to samples of their scores, by one adversary's view."""


def select_attack(trust: Trust) -> Attack:
    """Return the attack by the adversary of a trust model."""
    if trust.crowd is Crowd.BATCH:
        return attack_batches
    if trust.noise is NoiseOrigin.SERVERS:
        return attack_shares
    return attack_reports if trust.noise is NoiseOrigin.DEVICES else attack_releases


def model_for(attack: Attack) -> str:
    """Return the name of the trust model whose adversary runs this attack."""
    return next(row.name for row in TRUST.values() if row.promises and select_attack(row) is attack)


def mechanism_case(
    name: str, attack: Attack, target: Target, claim: tuple[float, float], count: int, calibration: str = "tight"
) -> Case:
    """Build an attack on a mechanism's claim of (epsilon, delta), under the trust model of the attack."""
    trust = TRUST[model_for(attack)]
    event = trust.event(target.mechanism, target.n_participants)
    assert event is not None
    mechanism_name = type(target.mechanism).__name__
    return Case(name, mechanism_name, trust.name, calibration, *claim, event, attack(target), count)


def draw_coins(count: int) -> Coins:
    """Draw public coins, shape (count,), as devices do."""
    return (SecureNoise().words(count) >> np.uint64(32)).astype(np.uint32)


def attack_reports(target: Target) -> Sampler:
    """Attack single reports; the adversary sees their coins."""
    mechanism = target.mechanism

    def sample(neighbour: int, count: int) -> Scores:
        contribution = target.neighbours[neighbour](draw_coins(count))
        rows = mechanism.parse(mechanism.randomize(contribution, SecureNoise()).tobytes())
        coins = rows["slot"] if rows.dtype.names else contribution.coins
        left, right = (log_likelihood(mechanism, maker(coins), rows) for maker in target.neighbours)
        return np.asarray(np.round(left - right, 6) + _public_labels(mechanism, coins))

    return sample


def _public_labels(mechanism: Mechanism, coins: Coins) -> Scores:
    """Return score offsets by the coins' public signs of two keys, which must not depend on the record."""
    if isinstance(mechanism, EventSymbol):
        return np.asarray(_LABEL_STEP * mechanism.is_key_report(coins))
    if not isinstance(mechanism, SignedSymbol | TieredSymbol):
        return np.zeros(len(coins))
    keys = np.arange(min(2, mechanism.layout.keys))
    return np.asarray(_LABEL_STEP * (hash_to_sign(mechanism.layout.hashes(coins[:, None], keys)) @ 3**keys))


def attack_releases(target: Target) -> Sampler:
    """Attack a curator's releases; the adversary subtracts the data of all other participants.

    A release has several participants with separate keys. The noise of its numbers is independent, so that each
    participant is an observation.
    """
    if isinstance(target.mechanism, ScreenedMoments):
        return attack_screened_releases(target)
    mechanism, n_participants = _widen_keys(target.mechanism)
    zero_noise = {name: 0.0 for name in ("standard_deviation", "scale") if hasattr(mechanism, name)}
    noiseless: Mechanism = msgspec.structs.replace(mechanism, **zero_noise)
    coins = np.arange(n_participants, dtype=np.uint32)

    def total(neighbour: int) -> Any:
        record = _widen_record(target.mechanism, target.neighbours[neighbour](coins))
        # Not parsed: protection is the noise, even if the curator did not clip vectors to the ball.
        return mechanism.add(mechanism.empty(), mechanism.randomize(record, SecureNoise()))

    def release(curator: Mechanism, aggregated: Any) -> NDArray[np.float64]:
        return released_numbers(curator.release(aggregated, SecureNoise()), n_participants)

    exact = [release(noiseless, total(neighbour)) for neighbour in (0, 1)]

    def sample(neighbour: int, count: int) -> Scores:
        aggregated, scores = total(neighbour), []
        for _ in range(-(-count // n_participants)):
            numbers = release(mechanism, aggregated)
            left, right = (log_noise_density(mechanism, numbers - neighbour_numbers) for neighbour_numbers in exact)
            scores.append(left - right)
        return np.concatenate(scores)[:count]

    return sample


def attack_shares(target: Target) -> Sampler:
    """Attack releases of two servers as a server, which knows its own noise and all votes but the target's.

    What is left is the other server's share of a release: the target's vote with that server's noise.
    """
    assert isinstance(target.mechanism, SharedVotes)
    wide, n_participants = _widen_keys(target.mechanism)
    mechanism = cast(SharedVotes, wide)
    coins = np.arange(n_participants, dtype=np.uint32)

    def count_votes(neighbour: int) -> NDArray[np.int64]:
        record = _widen_record(target.mechanism, target.neighbours[neighbour](coins))
        votes = mechanism.add(mechanism.empty(), mechanism.randomize(record, SecureNoise())).cells
        return np.asarray(
            votes.reshape(mechanism.n_parts, n_participants, -1).swapaxes(0, 1).reshape(n_participants, -1)
        )

    def sample(neighbour: int, count: int) -> Scores:
        exact, scores = [count_votes(side) for side in (0, 1)], []
        for _ in range(-(-count // n_participants)):
            noisy = add_servers_noise(mechanism, exact[neighbour])
            left, right = (
                log_noise_density(mechanism.server_noise, (noisy - votes * (STEPS // mechanism.unit)) / STEPS)
                for votes in exact
            )
            scores.append(left - right)
        return np.concatenate(scores)[:count]

    return sample


def add_servers_noise(mechanism: SharedVotes, votes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return votes, in units, with the noise that a server adds to its share, in steps."""
    share = mechanism.server_noise.add_to_share(votes.ravel().tolist(), mechanism.unit, SecureNoise())
    return join_shares([share]).reshape(votes.shape)


def attack_screened_releases(target: Target) -> Sampler:
    """Attack releases that choose features, all other records known: score chosen sequences, and moments' noise."""
    mechanism = target.mechanism
    assert isinstance(mechanism, ScreenedMoments)
    other_total = mechanism.empty()
    if target.others and target.n_participants > 1:
        others = target.others(np.zeros(target.n_participants, np.uint32))
        other_total = mechanism.add(other_total, mechanism.randomize(others, SecureNoise()))

    records = [mechanism.randomize(maker(np.zeros(1, np.uint32)), SecureNoise()) for maker in target.neighbours]
    totals = [mechanism.add(other_total, record) for record in records]
    scores = [
        mechanism.score_features(sums) / mechanism.scale if mechanism.screened else np.zeros(0) for sums in totals
    ]
    blocks: dict[tuple[int, ...], list[NDArray[np.float64]]] = {}

    def log_density(neighbour: int, release: SecondMomentSums) -> float:
        chosen, candidates = release.chosen.tolist(), mechanism.candidates
        if tuple(chosen) not in blocks:
            blocks[tuple(chosen)] = [mechanism.select_block(candidate, chosen) / MOMENT_GRID**2 for candidate in totals]
        log_probability = 0.0
        for candidate in chosen:
            log_probability += float(scores[neighbour][candidate] - logsumexp(scores[neighbour][candidates]))
            candidates = candidates[candidates != candidate]
        upper = np.triu_indices(len(release.moments))
        squared_errors = (release.moments - blocks[tuple(chosen)][neighbour])[upper] ** 2 / release.variances[upper]
        return log_probability - float(squared_errors.sum()) / 2

    def sample(neighbour: int, count: int) -> Scores:
        releases_seen = (mechanism.release(totals[neighbour], SecureNoise()) for _ in range(count))
        return np.array([log_density(0, release) - log_density(1, release) for release in releases_seen])

    return sample


def _widen_record(mechanism: Mechanism, record: Any) -> Any:
    """Return the records of participants with the keys that `_widen_keys` gives each of them."""
    if not isinstance(mechanism, CentralSums | CellPairs | SharedVotes):
        return record
    first_keys = mechanism.layout.keys * np.arange(len(record))
    return msgspec.structs.replace(record, keys=np.where(record.keys >= 0, record.keys + first_keys, -1))


def _widen_keys(mechanism: Mechanism) -> tuple[Mechanism, int]:
    """Return the mechanism with keys for several participants, and their number."""
    if not isinstance(mechanism, CentralSums | CellPairs | SharedVotes):
        return mechanism, 1
    layout = mechanism.layout
    n_participants = max(1, _NUMBERS_PER_RELEASE // max(1, layout.keys * (layout.groups + 1)))
    wide_layout = replace(layout, thresholds=np.tile(layout.thresholds, (n_participants, 1)))
    return msgspec.structs.replace(mechanism, layout=wide_layout), n_participants


def released_numbers(release: Any, n_participants: int) -> NDArray[np.float64]:
    """Return all private numbers of a release, shape (participants, numbers)."""
    if isinstance(release, CellHits):
        arrays = [*part_sums(release)]
    else:
        arrays = [release.sums] + ([release.hits] if hasattr(release, "hits") else [])
    return np.concatenate([array.reshape(n_participants, -1) for array in arrays], axis=1)


def part_sums(release: CellHits) -> NDArray[np.float64]:
    """Return the sums with independent noise, (parts, keys, groups); parts, or products with a number, are reversed."""
    if release.products is not None:
        return release.products.reshape(-1, *release.hits.shape)
    if release.squares is None:
        return np.stack([release.positive, release.hits - release.positive])
    moments = np.stack([release.positive, release.hits, release.squares])
    return np.asarray(np.tensordot(np.linalg.inv(release.parts.moments), moments, 1)[::-1])


def log_noise_density(mechanism: Mechanism | ServerNoise, noise: NDArray[np.float64]) -> Scores:
    """Return the log-density of noise (n, numbers), up to a constant."""
    if isinstance(mechanism, CentralSums | CellPairs | ServerNoise) and mechanism.scale:
        return np.asarray(-np.abs(noise).sum(axis=1) / mechanism.scale)
    assert isinstance(mechanism, CentralSums | CuratedSums | FeatureSums | ServerNoise)
    unit = mechanism.ball.step if isinstance(mechanism, CuratedSums) else getattr(mechanism, "step", 1.0)
    return np.asarray(-np.square(noise).sum(axis=1) / (2 * (mechanism.standard_deviation * unit) ** 2))


def attack_batches(target: Target) -> Sampler:
    """Attack permuted batches; the adversary knows all other participants of a batch."""
    if isinstance(target.mechanism, BitVectors):
        is_simulated_directly = target.mechanism.messages * target.n_participants <= _MAX_MESSAGES_PER_BATCH
        score_chunk = _score_summed_bits if is_simulated_directly else _score_simulated_sums
    else:
        score_chunk = _score_permuted_batches
    chunk_size = max(1, min(2000, _MESSAGES_PER_CHUNK // (target.n_participants * target.mechanism.messages)))

    def sample(neighbour: int, count: int) -> Scores:
        chunk_sizes = [min(chunk_size, count - start) for start in range(0, count, chunk_size)]
        return np.concatenate([score_chunk(target, neighbour, n_batches) for n_batches in chunk_sizes])

    return sample


def _score_permuted_batches(target: Target, neighbour: int, count: int) -> Scores:
    """Score permuted batches of reports with a few messages.

    The likelihood of a permuted batch is the mean likelihood ratio, target to others, over all subsets of messages that
    may be the target's. The score ignores the order, which `sealed_reports` attacks.
    """
    assert target.others is not None
    mechanism, others = target.mechanism, target.others
    target_reports = mechanism.randomize(target.neighbours[neighbour](draw_target_coins(target, count)), SecureNoise())
    other_reports = mechanism.randomize(others(draw_coins(count * (target.n_participants - 1))), SecureNoise())
    batches = np.concatenate([target_reports.reshape(count, -1), other_reports.reshape(count, -1)], axis=1)
    return score_batches(target, mechanism.parse(batches.tobytes()).reshape(batches.shape))


def score_batches(target: Target, batches: NDArray[Any]) -> Scores:
    """Score batches of opened messages in any order, shape (batches, messages)."""
    assert target.others is not None
    mechanism, rows = target.mechanism, batches.ravel()
    if isinstance(mechanism, BitVectors):
        totals = (mechanism.add(mechanism.empty(), batch) for batch in batches)
        return _project_sums(target, np.array([total.sums for total in totals]))
    other_likelihoods = log_likelihood(mechanism, target.others(rows["slot"]), rows)
    # If arms are seen, the reports of the target's arm alone may be the target's.
    is_candidate = mechanism.coin_groups(rows["slot"]) == target.arm if isinstance(mechanism, GroupedBit) else 1.0
    left, right = (
        np.exp(log_likelihood(mechanism, maker(rows["slot"]), rows) - other_likelihoods) * is_candidate
        for maker in target.neighbours
    )
    left, right = (_symmetric_polynomial(ratios.reshape(batches.shape), mechanism.messages) for ratios in (left, right))
    # Sums differ in their last digits by the order of reports, which must not split equal scores.
    is_possible = left > 0  # whether any of these messages may be the target's
    ratios = np.divide(left, right, where=is_possible, out=np.ones_like(left))
    return np.asarray(np.round(np.log(ratios), 9))


def draw_target_coins(target: Target, count: int) -> Coins:
    """Draw the target's coins: those of its arm if arms are seen, else uniform coins."""
    if not isinstance(target.mechanism, GroupedBit):
        return draw_coins(count)
    accepted = np.zeros(0, np.uint32)
    while len(accepted) < count:
        coins = draw_coins(4 * count)
        accepted = np.append(accepted, coins[target.mechanism.coin_groups(coins) == target.arm])
    return accepted[:count]


def _symmetric_polynomial(factors: NDArray[np.float64], degree: int) -> NDArray[np.float64]:
    """Return the elementary symmetric polynomial of a degree of each row's factors (n, all); shape (n,)."""
    sums = np.zeros((degree + 1, len(factors)))
    sums[0] = 1.0
    for factor in factors.T:
        sums[1:] += sums[:-1] * factor
    return np.asarray(sums[degree])


def _score_summed_bits(target: Target, neighbour: int, count: int) -> Scores:
    """Score the sums of batches whose bits are all drawn and added up."""
    assert target.others is not None
    mechanism, n_participants = target.mechanism, target.n_participants
    values = target.others(draw_coins(count * n_participants)).values.reshape(count, n_participants, -1)
    values[:, 0] = target.neighbours[neighbour](draw_coins(count)).values
    records = BoundedVectors(np.zeros(count * n_participants, np.uint32), values.reshape(count * n_participants, -1))
    messages = mechanism.randomize(records, SecureNoise()).reshape(count, -1)
    return score_batches(target, messages)


def _score_simulated_sums(target: Target, neighbour: int, count: int) -> Scores:
    """Score simulated sums of batches with too many bits to draw each."""
    assert target.others is not None
    values = target.others(np.zeros(target.n_participants, np.uint32)).values
    values[0] = target.neighbours[neighbour](np.zeros(1, np.uint32)).values[0]
    batch, rng = BoundedVectors(np.zeros(target.n_participants, np.uint32), values), np.random.default_rng()
    return _project_sums(target, np.array([target.mechanism.simulate(batch, rng).sums for _ in range(count)]))


def _project_sums(target: Target, sums: NDArray[Any]) -> Scores:
    """Project sums, shape (batches, coordinates), on the difference of the neighbours."""
    assert isinstance(target.mechanism, BitVectors)
    neighbour_values = [maker(np.zeros(1, np.uint32)).values for maker in target.neighbours]
    left, right = (target.mechanism.ball.clip(vector)[0] for vector in neighbour_values)
    return np.asarray(sums @ (left - right))
