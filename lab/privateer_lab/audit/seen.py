"""Attacks by somebody who also sees which arm a person got: content that was fetched, an exposure log."""

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privateer.accounting.curator import SENSITIVITY
from privateer.accounting.events import Gaussian, ShuffledResponse
from privateer.algorithms.partition import DEPTH_MAX, PartitionPolicy
from privateer.coins import UNIT, Layout, bucket, sign
from privateer.experiment import Privacy
from privateer.mechanisms.central_sums import CentralSums
from privateer.mechanisms.signed_symbol import SignedSymbol
from privateer.sampling.entropy import SecureNoise
from privateer.terms import calibrate
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.evidence import Scores

_BATCH: Final = 100
_BATCHES_AT_ONCE: Final = 500
_RARE: Final = 0.01
_CERTAIN: Final = 50.0
"""Score of an observation that only one of the neighbours can cause."""
_ELSEWHERE: Final = 0.9
"""Context of everybody else."""


class Person(NamedTuple):
    """One neighbour: context and reward. Both have played the arm that is seen."""

    context: float
    reward: float


class Scene(NamedTuple):
    """A policy, the arm that somebody is seen to play, and two neighbours."""

    name: str
    policy: PartitionPolicy
    arm: int
    people: tuple[Person, Person]


def seen_cases(samples: int, arms: str = "seen") -> list[Case]:
    """Attacks on a first round, and on a learned policy that plays the seen arm rarely.

    Parameters
    ----------
    arms
        ``hidden`` attacks promises that count on nobody seeing arms: they break.
    """
    shuffle = Privacy.model_validate(
        {"model": "shuffle", "epsilon": 1.0, "delta": 0.01, "min_batch": _BATCH, "honest_fraction": 1.0, "arms": arms}
    )
    central = Privacy.model_validate({"model": "central", "epsilon": 1.0, "delta": 1e-6, "arms": arms})
    shuffled = [_shuffled(scene, shuffle, max(4000, samples // 20)) for scene in _scenes(shuffle)]
    return [*shuffled, *(_released(scene, central, samples // 20) for scene in _scenes(central)[-1:])]


def _scenes(privacy: Privacy) -> list[Scene]:
    even, rare = np.full((1, 3), 1 / 3), np.array([[_RARE, (1 - _RARE) / 2, (1 - _RARE) / 2]] * 2)
    first, learned = _policy(privacy, even), _policy(privacy, rare)
    here = 0.1
    return [
        Scene("first round", first, 0, (Person(here, 1.0), Person(here, 0.0))),
        Scene("rare arm, opposite rewards", learned, 0, (Person(here, 1.0), Person(here, 0.0))),
        Scene("rare arm, another bin", learned, 0, (Person(here, 1.0), Person(_ELSEWHERE, 1.0))),
    ]


def _policy(privacy: Privacy, shares: Scores) -> PartitionPolicy:
    """One bin, or two halves of the feature, with these shares of the arms, (bins, arms)."""
    bins = len(shares)
    edges = np.rint(np.cumsum(shares, axis=1)[:, :-1] * UNIT).astype(np.uint32)
    terms = calibrate(privacy, _BATCH, 1.0, 1 / bins)
    return PartitionPolicy(
        version=1,
        dimension=1,
        axes=np.zeros(DEPTH_MAX, np.int64),
        depths=np.full(bins, bins - 1),
        paths=np.arange(bins),
        active=np.ones(shares.shape, bool),
        bins=np.arange(bins),
        layout=Layout(0x5EED, edges),
        terms=replace(terms, batch=_BATCH),
    )


def _coins(count: int) -> NDArray[np.uint32]:
    return (SecureNoise().words(count) >> np.uint64(32)).astype(np.uint32)


def _coins_that_choose(policy: PartitionPolicy, person: Person, arm: int, count: int) -> NDArray[np.uint32]:
    """Coins of people whose arm was seen, shape (count,)."""
    found = np.zeros(0, np.uint32)
    while len(found) < count:
        tried = _coins(1 << 18)
        arms = policy.choose(np.full((len(tried), 1), person.context), tried)
        found = np.concatenate([found, tried[arms == arm]])
    return found[:count]


def _reports(policy: PartitionPolicy, person: Person, slots: NDArray[np.uint32]) -> NDArray[np.void]:
    """Reports of people alike whose choices had these coins, as the client library makes them."""
    contexts = np.full((len(slots), 1), person.context)
    arms = policy.choose(contexts, slots)
    told = _coins(len(slots)) if policy.terms.arm_in_key else slots
    contributions = policy.contribute(contexts, told, arms, np.full(len(slots), person.reward))
    rows: NDArray[np.void] = policy.mechanism.randomize(contributions, SecureNoise())
    return rows


def _shuffled(scene: Scene, privacy: Privacy, count: int) -> Case:
    terms = scene.policy.terms
    event = ShuffledResponse(terms.local_epsilon, terms.symbols, terms.honest)
    sample, name = _batches(scene), f"seen arm, {scene.name}"
    return Case(name, "SignedSymbol", "shuffle", "tight", privacy.bound, privacy.delta, event, sample, count)


def _batches(scene: Scene) -> Sampler:
    """Everybody else is elsewhere, with a reward of 0, and plays what their coins say; nobody sees their arms."""
    policy, others = scene.policy, Person(_ELSEWHERE, 0.0)

    def batches(who: int, count: int) -> Scores:
        person = scene.people[who]
        one = _reports(policy, person, _coins_that_choose(policy, person, scene.arm, count))
        rest = _reports(policy, others, _coins(count * (_BATCH - 1)))
        batch = np.concatenate([one[:, None], rest.reshape(count, -1)], axis=1).ravel()
        known = _chances(policy, others, None, batch)
        left, right = (
            (_chances(policy, one, scene.arm, batch) / known).reshape(count, -1).sum(axis=1) for one in scene.people
        )
        with np.errstate(divide="ignore"):
            ratio = np.log(left) - np.log(right)
        return np.asarray(np.round(np.clip(ratio, -_CERTAIN, _CERTAIN), 9))

    def sample(who: int, count: int) -> Scores:
        steps = [min(_BATCHES_AT_ONCE, count - start) for start in range(0, count, _BATCHES_AT_ONCE)]
        return np.concatenate([batches(who, step) for step in steps])

    return sample


def _chances(policy: PartitionPolicy, person: Person, seen: int | None, reports: NDArray[np.void]) -> Scores:
    """Density of each report against uniform coins, if a person sent it who was seen to play an arm; shape (n,)."""
    key = int(policy.locate(np.array([[person.context]]))[0])
    shares = policy.layout.shares[key]
    arms = range(len(shares)) if seen is None else [seen]
    weights = shares if seen is None else np.ones_like(shares)
    if policy.terms.arm_in_key:
        cells = policy.cells.tolist()
        told = [weights[arm] * _response(policy, cells.index([key, arm]), person.reward, reports) for arm in arms]
        return np.asarray(np.sum(told, axis=0))
    alone = _response(policy, key, person.reward, reports)
    if seen is None:
        return alone
    keys = np.full(len(reports), key)
    chosen = policy.layout.group(policy.layout.hashes(reports["slot"], keys), keys) == seen
    return np.asarray(alone * chosen / shares[seen])


def _response(policy: PartitionPolicy, key: int, reward: float, reports: NDArray[np.void]) -> Scores:
    """Chance of each report's symbol, given its coins, for a key and a reward of 0 or 1."""
    mechanism: SignedSymbol = policy.mechanism
    hashes = policy.reported.hashes(reports["slot"], np.full(len(reports), key))
    truth = 2 * bucket(hashes, mechanism.buckets) + ((2 * reward - 1) * sign(hashes) > 0)
    response = mechanism.response
    return np.where(reports["symbol"] == truth, response.truth, response.other)


def _released(scene: Scene, privacy: Privacy, count: int) -> Case:
    event = Gaussian(scene.policy.terms.standard_deviation, SENSITIVITY)
    sample, name = _releases(scene), f"seen arm, {scene.name}"
    return Case(name, "CuratedSums", "central", "tight", privacy.bound, privacy.delta, event, sample, max(2000, count))


def _releases(scene: Scene) -> Sampler:
    """A curator's releases of one person's round: the adversary knows everybody else, and takes them away."""
    policy = scene.policy
    curator: CentralSums = policy.mechanism
    silent = replace(curator, standard_deviation=0.0)

    def exact(person: Person) -> Scores:
        slots = _coins_that_choose(policy, person, scene.arm, 1)
        release = silent.release(silent.add(silent.empty(), _reports(policy, person, slots)), SecureNoise())
        return np.concatenate([release.sums.ravel(), release.hits])

    left, right = (exact(person) for person in scene.people)
    direction = (left - right) / np.linalg.norm(left - right)

    def told(person: Person, slots: NDArray[np.uint32]) -> float:
        release = curator.release(curator.add(curator.empty(), _reports(policy, person, slots)), SecureNoise())
        noisy = float((np.concatenate([release.sums.ravel(), release.hits]) - right) @ direction)
        return noisy + _CERTAIN * (_could_be(scene, 0, release.counts) - _could_be(scene, 1, release.counts))

    def sample(who: int, count: int) -> Scores:
        person = scene.people[who]
        coins = _coins_that_choose(policy, person, scene.arm, count)
        return np.array([told(person, coins[i : i + 1]) for i in range(count)])

    return sample


def _could_be(scene: Scene, who: int, counts: NDArray[np.int64]) -> bool:
    """Whether exact counts by coins allow that the neighbour's coins chose the arm that was seen."""
    if counts.shape[1] == 1:
        return True
    key = int(scene.policy.locate(np.array([[scene.people[who].context]]))[0])
    return bool(counts[key, scene.arm])
