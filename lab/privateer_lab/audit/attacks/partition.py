"""Attacks by an adversary who also sees the arm of a participant, by fetched content or an exposure log."""

from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.events import Pure
from privateer_core.algorithms.partition import DEPTH_MAX, PartitionPolicy
from privateer_core.mechanisms import Mechanism
from privateer_core.policies.policy import Arms
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.terms import calibrate
from privateer_core.sampling.randomness import SecureNoise
from privateer_core.spec.privacy import Privacy
from privateer_lab.audit import views
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.law import Scores
from privateer_lab.audit.likelihoods import log_likelihood

_BATCH_SIZE: Final = 100
_BATCHES_PER_CHUNK: Final = 500
_RARE_SHARE: Final = 0.01
_MAX_SCORE: Final = 50.0
"""Largest absolute score: that of an observation which only one neighbour can cause."""
_OTHER_CONTEXT: Final = 0.9
"""Context of all other participants."""


class SeenNeighbour(NamedTuple):
    """Context and reward of one neighbour. Both neighbours have played the seen arm."""

    context: float
    reward: float


class Scene(NamedTuple):
    """A policy, the arm that the adversary sees, and two neighbours."""

    name: str
    policy: PartitionPolicy
    arm: int
    neighbours: tuple[SeenNeighbour, SeenNeighbour]


def cases(samples: int) -> list[Case]:
    """Build all attacks by an adversary who sees arms."""
    return [*visible_arm_cases(samples), *as_local_cases(samples)]


def visible_arm_cases(samples: int, visibility: str = "visible") -> list[Case]:
    """Build attacks on a first round and on a policy that plays the seen arm rarely; ``hidden`` promises break."""
    batched: Any = {"delta": 0.01, "min_batch": _BATCH_SIZE, "honest_fraction": 1.0}
    shuffle = Privacy.model_validate(
        {"model": views.model_for(views.attack_batches), "epsilon": 1.0, "arm_visibility": visibility, **batched}
    )
    central = Privacy.model_validate(
        {"model": views.model_for(views.attack_releases), "epsilon": 1.0, "arm_visibility": visibility, "delta": 1e-6}
    )
    attacked = [(scene, _batch_sampler(scene), max(4000, samples // 20)) for scene in _build_scenes(shuffle)]
    attacked += [(scene, _release_sampler(scene), max(2000, samples // 20)) for scene in _build_scenes(central)[-1:]]
    named = ((f"seen arm, {scene.name}", scene.policy.terms, sample, count) for scene, sample, count in attacked)
    return [Case.from_terms(*facts) for facts in named]


def as_local_cases(samples: int, factor: float = 1.0) -> list[Case]:
    """Build attacks by colluding services, who see the arm; ``factor`` divides the noise, as a planted defect does."""
    model = views.model_for(views.attack_batches)
    privacy = Privacy.model_validate({"model": model, "epsilon": 1.0, "delta": 1e-6, "arm_visibility": "as-local"})
    scenes = [scene for scene in _build_scenes(privacy) if len({person.context for person in scene.neighbours}) == 1]
    return [_as_local_case(scene, privacy, samples // 4, factor) for scene in scenes]


def _as_local_case(scene: Scene, privacy: Privacy, count: int, factor: float) -> Case:
    """Make a case that tells the scene's neighbours apart by one report, with noise weakened by `factor`."""
    terms = scene.policy.terms
    weakened = replace(scene.policy, terms=replace(terms, mechanism=terms.mechanism.with_less_noise(factor)))

    def score(neighbour: int, count: int) -> Scores:
        coins = _draw_coins_choosing(weakened, scene.neighbours[neighbour], scene.arm, count)
        reports, arms = _make_reports(weakened, scene.neighbours[neighbour], coins), np.full(count, scene.arm)
        contributions = (_contribute(weakened, person, coins, arms) for person in scene.neighbours)
        left, right = (log_likelihood(weakened.mechanism, values, reports) for values in contributions)
        return np.asarray(left - right)

    name, kind = f"seen arm as local, {scene.name}", type(terms.mechanism).__name__
    return Case(name, kind, privacy.model, "tight", privacy.bound, 0.0, Pure(privacy.bound), score, count)


def _build_scenes(privacy: Privacy) -> list[Scene]:
    """Build the pairs of neighbours of a first round and of a policy that rarely plays their arm."""
    even, rare = (np.full((1, 3), 1 / 3), np.array([[_RARE_SHARE, (1 - _RARE_SHARE) / 2, (1 - _RARE_SHARE) / 2]] * 2))
    first, learned = _make_policy(privacy, even), _make_policy(privacy, rare)
    context = 0.1
    return [
        Scene("first round", first, 0, (SeenNeighbour(context, 1.0), SeenNeighbour(context, 0.0))),
        Scene("rare arm, opposite rewards", learned, 0, (SeenNeighbour(context, 1.0), SeenNeighbour(context, 0.0))),
        Scene("rare arm, another bin", learned, 0, (SeenNeighbour(context, 1.0), SeenNeighbour(_OTHER_CONTEXT, 1.0))),
    ]


def _make_policy(privacy: Privacy, allocations: Scores) -> PartitionPolicy:
    """Build a policy with one bin, or with two halves of the feature, and the arms' allocation, (bins, arms)."""
    bins, arms = allocations.shape
    choice = Layout(0x5EED, np.rint(np.cumsum(allocations, axis=1)[:, :-1] * UNIT).astype(np.uint32))
    in_key = Layout.ungrouped(bins * arms, 0x5EED)
    question = KeyedMeans(in_key if privacy.has_arm_in_key else choice, 1.0, 1 / bins, has_counts=True)
    return PartitionPolicy(
        version=1,
        dimension=1,
        axes=np.zeros(DEPTH_MAX, np.int64),
        depths=np.full(bins, bins - 1),
        paths=np.arange(bins),
        active=np.ones(allocations.shape, bool),
        bins=np.arange(bins),
        terms=calibrate(privacy, _BATCH_SIZE, question),
        choice=choice if privacy.has_arm_in_key else None,
    )


def _draw_coins_choosing(policy: PartitionPolicy, person: SeenNeighbour, arm: int, count: int) -> views.Coins:
    """Draw coins for which the policy chooses an arm, shape (count,)."""
    accepted = np.zeros(0, np.uint32)
    while len(accepted) < count:
        coins = views.draw_coins(1 << 18)
        arms = policy.decide(np.full((len(coins), 1), person.context), coins).arms
        accepted = np.concatenate([accepted, coins[arms == arm]])
    return accepted[:count]


def _contribute(
    policy: PartitionPolicy, person: SeenNeighbour, coins: views.Coins, arms: NDArray[np.int64]
) -> KeyedValues:
    """Return the contributions of equal participants with these coins in their reports."""
    contexts, rewards = np.full((len(coins), 1), person.context), np.full(len(coins), person.reward)
    return policy.contribute(contexts, coins, Arms(arms), rewards)


def _make_reports(policy: PartitionPolicy, person: SeenNeighbour, coins: views.Coins) -> NDArray[Any]:
    """Randomize the reports of equal participants whose choices had these coins, as the client library does."""
    arms = policy.decide(np.full((len(coins), 1), person.context), coins).arms
    report_coins = views.draw_coins(len(coins)) if policy.has_fresh_coins else coins
    rows: NDArray[Any] = policy.mechanism.randomize(_contribute(policy, person, report_coins, arms), SecureNoise())
    return rows


def _batch_sampler(scene: Scene) -> Sampler:
    """Return a sampler of batches in which the crowd has another context, a reward of 0 and hidden arms."""
    policy, others = scene.policy, SeenNeighbour(_OTHER_CONTEXT, 0.0)

    def score(neighbour: int, count: int) -> Scores:
        person = scene.neighbours[neighbour]
        target_reports = _make_reports(policy, person, _draw_coins_choosing(policy, person, scene.arm, count))
        other_reports = _make_reports(policy, others, views.draw_coins(count * (_BATCH_SIZE - 1)))
        batch = np.concatenate([target_reports[:, None], other_reports.reshape(count, -1)], axis=1).ravel()
        other_densities = _find_densities(policy, others, None, batch)
        ratios = (_find_densities(policy, person, scene.arm, batch) / other_densities for person in scene.neighbours)
        left, right = (report_ratios.reshape(count, -1).sum(axis=1) for report_ratios in ratios)
        with np.errstate(divide="ignore"):
            ratio = np.log(left) - np.log(right)
        return np.asarray(np.round(np.clip(ratio, -_MAX_SCORE, _MAX_SCORE), 9))

    def sample(neighbour: int, count: int) -> Scores:
        chunk_sizes = [min(_BATCHES_PER_CHUNK, count - start) for start in range(0, count, _BATCHES_PER_CHUNK)]
        return np.concatenate([score(neighbour, chunk_size) for chunk_size in chunk_sizes])

    return sample


def _find_densities(
    policy: PartitionPolicy, person: SeenNeighbour, seen_arm: int | None, reports: NDArray[Any]
) -> Scores:
    """Return reports' densities relative to uniform coins, (n,), for a participant whose arm was seen or not (None)."""
    coins, key = reports["slot"], int(policy.locate(np.array([[person.context]]))[0])
    allocation = policy.layout.shares[key]

    def density_of_arms(arms: NDArray[np.int64]) -> Scores:
        return np.exp(log_likelihood(policy.mechanism, _contribute(policy, person, coins, arms), reports))

    if policy.has_fresh_coins:
        weights = enumerate(allocation) if seen_arm is None else [(seen_arm, 1.0)]
        return np.asarray(sum(share * density_of_arms(np.full(len(coins), arm)) for arm, share in weights))
    keys = np.full(len(coins), key)
    chosen_arms = policy.layout.find_groups(policy.layout.hashes(coins, keys), keys)
    densities = density_of_arms(chosen_arms)
    return densities if seen_arm is None else densities * (chosen_arms == seen_arm) / allocation[seen_arm]


def _release_sampler(scene: Scene) -> Sampler:
    """Return a sampler of a curator's releases, from which the adversary has subtracted all other participants."""
    policy = scene.policy
    curator: Any = policy.mechanism
    noiseless = type(curator)(curator.layout)

    def exact(person: SeenNeighbour) -> Scores:
        coins = _draw_coins_choosing(policy, person, scene.arm, 1)
        return np.asarray(
            views.released_numbers(_release_reports(noiseless, _make_reports(policy, person, coins)), 1)[0]
        )

    left, right = (exact(person) for person in scene.neighbours)

    def score(person: SeenNeighbour, coins: views.Coins) -> float:
        release = _release_reports(curator, _make_reports(policy, person, coins))
        numbers = views.released_numbers(release, 1)
        ratio = float(
            views.log_noise_density(curator, numbers - left)[0] - views.log_noise_density(curator, numbers - right)[0]
        )
        return ratio + _MAX_SCORE * (_is_possible(scene, 0, release.counts) - _is_possible(scene, 1, release.counts))

    def sample(neighbour: int, count: int) -> Scores:
        person = scene.neighbours[neighbour]
        coins = _draw_coins_choosing(policy, person, scene.arm, count)
        return np.array([score(person, coins[i : i + 1]) for i in range(count)])

    return sample


def _release_reports(curator: Mechanism, reports: NDArray[Any]) -> Any:
    """Release the sums of these reports alone."""
    return curator.release(curator.add(curator.empty(), reports), SecureNoise())


def _is_possible(scene: Scene, neighbour: int, counts: NDArray[np.int64]) -> bool:
    """Whether the exact counts by coins are possible if the neighbour's coins chose the seen arm."""
    if counts.shape[1] == 1:
        return True
    key = int(scene.policy.locate(np.array([[scene.neighbours[neighbour].context]]))[0])
    return bool(counts[key, scene.arm])
