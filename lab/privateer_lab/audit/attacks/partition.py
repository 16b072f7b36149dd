"""Attacks by somebody who also sees which arm a person got: content that was fetched, an exposure log."""

from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.events import Pure
from privateer_core.algorithms.partition import DEPTH_MAX, PartitionPolicy
from privateer_core.mechanisms import Mechanism
from privateer_core.policies.decisions import Arms
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.terms import calibrate
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.spec.privacy import Privacy
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.views import (
    Coins,
    batches,
    draw_coins,
    log_likelihood,
    model_of,
    noise_density,
    released_numbers,
    releases,
)

_BATCH: Final = 100
_BATCHES_AT_ONCE: Final = 500
_RARE: Final = 0.01
_CERTAIN: Final = 50.0
"""Score of an observation that only one of the neighbours can cause."""
_ELSEWHERE: Final = 0.9
"""Context of everybody else."""


class SeenPerson(NamedTuple):
    """One neighbour: context and reward. Both have played the arm that is seen."""

    context: float
    reward: float


class Scene(NamedTuple):
    """A policy, the arm that somebody is seen to play, and two neighbours."""

    name: str
    policy: PartitionPolicy
    arm: int
    people: tuple[SeenPerson, SeenPerson]


def cases(samples: int) -> list[Case]:
    """Return all attacks by somebody who sees arms."""
    return [*seen_cases(samples), *as_local_cases(samples)]


def seen_cases(samples: int, arms: str = "seen") -> list[Case]:
    """Return attacks on a first round, and on a learned policy that plays the seen arm rarely.

    arms: ``hidden`` attacks promises that count on nobody seeing arms: they break.
    """
    batched: Any = {"delta": 0.01, "min_batch": _BATCH, "honest_fraction": 1.0}
    shuffle = Privacy.model_validate({"model": model_of(batches), "epsilon": 1.0, "arms": arms, **batched})
    central = Privacy.model_validate({"model": model_of(releases), "epsilon": 1.0, "arms": arms, "delta": 1e-6})
    shuffled = [_shuffled(scene, shuffle, max(4000, samples // 20)) for scene in _scenes(shuffle)]
    return [*shuffled, *(_released(scene, central, samples // 20) for scene in _scenes(central)[-1:])]


def as_local_cases(samples: int, factor: float = 1.0) -> list[Case]:
    """Return attacks by server and shuffler together, who see a person's arm, on reports made as if nobody hid them.

    factor: so much less noise is planted.
    """
    privacy = Privacy.model_validate({"model": model_of(batches), "epsilon": 1.0, "delta": 1e-6, "arms": "as-local"})
    made = [scene for scene in _scenes(privacy) if len({person.context for person in scene.people}) == 1]
    return [_alone(scene, privacy, samples // 4, factor) for scene in made]


def _alone(scene: Scene, privacy: Privacy, count: int, factor: float) -> Case:
    terms = scene.policy.terms
    noisy = replace(scene.policy, terms=replace(terms, mechanism=terms.mechanism.weaker(factor)))

    def score(who: int, count: int) -> Scores:
        coins = _coins_that_choose(noisy, scene.people[who], scene.arm, count)
        reports, arms = _reports(noisy, scene.people[who], coins), np.full(count, scene.arm)
        left, right = (
            log_likelihood(noisy.mechanism, _contribution(noisy, person, coins, arms), reports)
            for person in scene.people
        )
        return np.asarray(left - right)

    name, kind = f"seen arm as local, {scene.name}", type(terms.mechanism).__name__
    return Case(name, kind, privacy.model, "tight", privacy.bound, 0.0, Pure(privacy.bound), score, count)


def _scenes(privacy: Privacy) -> list[Scene]:
    even, rare = np.full((1, 3), 1 / 3), np.array([[_RARE, (1 - _RARE) / 2, (1 - _RARE) / 2]] * 2)
    first, learned = _policy(privacy, even), _policy(privacy, rare)
    here = 0.1
    return [
        Scene("first round", first, 0, (SeenPerson(here, 1.0), SeenPerson(here, 0.0))),
        Scene("rare arm, opposite rewards", learned, 0, (SeenPerson(here, 1.0), SeenPerson(here, 0.0))),
        Scene("rare arm, another bin", learned, 0, (SeenPerson(here, 1.0), SeenPerson(_ELSEWHERE, 1.0))),
    ]


def _policy(privacy: Privacy, shares: Scores) -> PartitionPolicy:
    """Return a policy of one bin, or of two halves of the feature, with these shares of the arms, (bins, arms)."""
    bins, arms = shares.shape
    choice = Layout(0x5EED, np.rint(np.cumsum(shares, axis=1)[:, :-1] * UNIT).astype(np.uint32))
    in_key = Layout.ungrouped(bins * arms, 0x5EED)
    question = KeyedMeans(in_key if privacy.arm_in_key else choice, 1.0, 1 / bins, counted=True)
    return PartitionPolicy(
        version=1,
        dimension=1,
        axes=np.zeros(DEPTH_MAX, np.int64),
        depths=np.full(bins, bins - 1),
        paths=np.arange(bins),
        active=np.ones(shares.shape, bool),
        bins=np.arange(bins),
        terms=calibrate(privacy, _BATCH, question),
        choice=choice if privacy.arm_in_key else None,
    )


def _coins_that_choose(policy: PartitionPolicy, person: SeenPerson, arm: int, count: int) -> Coins:
    """Draw the coins of people whose arm was seen, shape (count,)."""
    found = np.zeros(0, np.uint32)
    while len(found) < count:
        tried = draw_coins(1 << 18)
        arms = policy.decide(np.full((len(tried), 1), person.context), tried).arms
        found = np.concatenate([found, tried[arms == arm]])
    return found[:count]


def _contribution(policy: PartitionPolicy, person: SeenPerson, coins: Coins, arms: NDArray[np.int64]) -> KeyedValues:
    """Return what people alike contribute, with these coins in their reports."""
    contexts, rewards = np.full((len(coins), 1), person.context), np.full(len(coins), person.reward)
    return policy.contribute(contexts, coins, Arms(arms), rewards)


def _reports(policy: PartitionPolicy, person: SeenPerson, coins: Coins) -> NDArray[Any]:
    """Return reports of people alike whose choices had these coins, as the client library makes them."""
    arms = policy.decide(np.full((len(coins), 1), person.context), coins).arms
    own = draw_coins(len(coins)) if policy.fresh_coins else coins
    rows: NDArray[Any] = policy.mechanism.randomize(_contribution(policy, person, own, arms), SecureNoise())
    return rows


def _shuffled(scene: Scene, privacy: Privacy, count: int) -> Case:
    event = scene.policy.terms.event
    assert event is not None
    sample, name = _batches(scene), f"seen arm, {scene.name}"
    return Case(name, "SignedSymbol", privacy.model, "tight", privacy.bound, privacy.delta, event, sample, count)


def _batches(scene: Scene) -> Sampler:
    """Sample batches in which everybody else is elsewhere, has a reward of 0, and plays arms that nobody sees."""
    policy, others = scene.policy, SeenPerson(_ELSEWHERE, 0.0)

    def score(who: int, count: int) -> Scores:
        person = scene.people[who]
        one = _reports(policy, person, _coins_that_choose(policy, person, scene.arm, count))
        rest = _reports(policy, others, draw_coins(count * (_BATCH - 1)))
        batch = np.concatenate([one[:, None], rest.reshape(count, -1)], axis=1).ravel()
        known = _density(policy, others, None, batch)
        left, right = (
            (_density(policy, one, scene.arm, batch) / known).reshape(count, -1).sum(axis=1) for one in scene.people
        )
        with np.errstate(divide="ignore"):
            ratio = np.log(left) - np.log(right)
        return np.asarray(np.round(np.clip(ratio, -_CERTAIN, _CERTAIN), 9))

    def sample(who: int, count: int) -> Scores:
        steps = [min(_BATCHES_AT_ONCE, count - start) for start in range(0, count, _BATCHES_AT_ONCE)]
        return np.concatenate([score(who, step) for step in steps])

    return sample


def _density(policy: PartitionPolicy, person: SeenPerson, seen: int | None, reports: NDArray[Any]) -> Scores:
    """Return each report's density against uniform coins, if a person sent it who was seen to play an arm; (n,).

    None: nobody saw it.
    """
    coins, key = reports["slot"], int(policy.locate(np.array([[person.context]]))[0])
    shares = policy.layout.shares[key]

    def of(arms: NDArray[np.int64]) -> Scores:
        return np.exp(log_likelihood(policy.mechanism, _contribution(policy, person, coins, arms), reports))

    if policy.fresh_coins:
        played = [(arm, share) for arm, share in enumerate(shares) if seen is None] or [(cast(int, seen), 1.0)]
        return np.asarray(sum(share * of(np.full(len(coins), arm)) for arm, share in played))
    keys = np.full(len(coins), key)
    chosen = policy.layout.group(policy.layout.hashes(coins, keys), keys)
    return of(chosen) if seen is None else np.asarray(of(chosen) * (chosen == seen) / shares[seen])


def _released(scene: Scene, privacy: Privacy, count: int) -> Case:
    event = scene.policy.terms.event
    assert event is not None
    sample, name, count = _releases(scene), f"seen arm, {scene.name}", max(2000, count)
    return Case(
        name,
        type(scene.policy.mechanism).__name__,
        privacy.model,
        "tight",
        privacy.bound,
        privacy.delta,
        event,
        sample,
        count,
    )


def _releases(scene: Scene) -> Sampler:
    """Sample a curator's releases of one person's round: the adversary takes away everybody else, whom it knows."""
    policy = scene.policy
    curator: Any = policy.mechanism
    silent = type(curator)(curator.layout)

    def exact(person: SeenPerson) -> Scores:
        coins = _coins_that_choose(policy, person, scene.arm, 1)
        return np.asarray(released_numbers(_release(silent, _reports(policy, person, coins)), 1)[0])

    left, right = (exact(person) for person in scene.people)

    def score(person: SeenPerson, coins: Coins) -> float:
        release = _release(curator, _reports(policy, person, coins))
        found = released_numbers(release, 1)
        noisy = float(noise_density(curator, found - left)[0] - noise_density(curator, found - right)[0])
        return noisy + _CERTAIN * (_could_be(scene, 0, release.counts) - _could_be(scene, 1, release.counts))

    def sample(who: int, count: int) -> Scores:
        person = scene.people[who]
        coins = _coins_that_choose(policy, person, scene.arm, count)
        return np.array([score(person, coins[i : i + 1]) for i in range(count)])

    return sample


def _release(curator: Mechanism, reports: NDArray[Any]) -> Any:
    """Release the reports, and nothing else."""
    return curator.release(curator.add(curator.empty(), reports), SecureNoise())


def _could_be(scene: Scene, who: int, counts: NDArray[np.int64]) -> bool:
    """Whether exact counts by coins allow that the neighbour's coins chose the arm that was seen."""
    if counts.shape[1] == 1:
        return True
    key = int(scene.policy.locate(np.array([[scene.people[who].context]]))[0])
    return bool(counts[key, scene.arm])
