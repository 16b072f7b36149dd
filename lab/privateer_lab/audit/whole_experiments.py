"""Attacks on whole experiments of every algorithm: an adversary who sees every round, and knows everybody but one."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.events import Event, Gaussian, Parallel
from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.mechanisms import AnyMechanism, GroupedBit
from privateer_core.policies.decisions import Plays, Points
from privateer_core.policies.policy import Policy
from privateer_core.spec.adjustment import learned_names, with_numbers
from privateer_core.spec.spec import Spec
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.views import Coins, Maker, Target, view
from privateer_server.rounds.loop import Schedule

_SEED: Final = 7
_BEYOND: Final = 9.0
"""Rewards of the target in units of their bound: what protects a person must not depend on what they observe."""
_HERE, _THERE = 0.1, 0.9
"""Contexts, the same in every feature."""


class TargetPerson(NamedTuple):
    """Somebody whose features are all at ``place``, and who observes rewards at ``side`` times `_BEYOND` bounds."""

    place: float
    side: float


_PAIRS: Final = {
    "opposite rewards": (TargetPerson(_HERE, 1.0), TargetPerson(_HERE, -1.0)),
    "another context": (TargetPerson(_HERE, 1.0), TargetPerson(_THERE, 1.0)),
}
_OTHERS: Final = TargetPerson(_THERE, -1.0)
_LEAST, _BYTES = 1000, 40
"""Fewest observations of an attack, and the bytes of one for which as many are made as the command says."""
_BITS_AT_ONCE: Final = 20.0
"""Messages of one bit that take as long as a byte of others."""


def experiment_cases(samples: int, chosen: set[str] | None = None) -> list[Case]:
    """Return attacks on all algorithms, or the chosen, under every trust model with a claim, as instances calibrate it.

    Where rounds hand out records, there is no release to attack: only attacks of the algorithm's own know what follows.
    """
    claims = (claim for claim in _claims() if chosen is None or claim[0] in chosen)
    return [case for name, instance, spec in claims for case in _cases(name, instance, spec, samples)]


def claiming_algorithms() -> set[str]:
    """Return the names of the algorithms that are attacked."""
    return {name for name, _, _ in _claims()}


def _claims() -> Iterator[tuple[str, str, Spec]]:
    """Yield algorithm, instance and spec wherever something is promised."""
    for name in ALGORITHMS:
        for instance, spec in algorithm(name).spec.instances().items():
            if spec.privacy.trust.promises and (terms := spec.planned("")) and terms.event:
                yield name, instance, spec


def _cases(name: str, instance: str, spec: Spec, samples: int) -> Iterator[Case]:
    asking = _most_asked(list(rounds(spec)))
    claim = (spec.privacy.model, spec.privacy.trust.calibration, spec.privacy.bound, spec.privacy.delta)
    for pair, people in _PAIRS.items():
        if people[0].place == people[1].place or spec.dimension:
            sample = _sampler(spec, asking, people)
            yield Case(f"{instance}, {pair}", name, *claim, _worst(asking), sample, _count(asking, samples))


def _most_asked(policies: list[Policy]) -> list[Policy]:
    """Return the rounds that ask the person whom most rounds ask; the promise counts on one.

    Where whoever comes is asked, and a device reports once, the target comes last: most is known of the others then.
    """
    draws = [policy.draw for policy in policies]
    if draws[0] is None:
        return policies[-1:]
    asked = np.array([np.isin(np.arange(draw.people), draw.asked()) for draw in draws if draw is not None])
    target = int(np.argmax(asked.sum(axis=0)))
    return [policy for policy, has in zip(policies, asked[:, target], strict=True) if has]


def _worst(policies: list[Policy]) -> Event:
    """Return the claim: a person is in one round, and normal noise of several is ordered by its size."""
    events = tuple(event for policy in policies if (event := policy.terms.event))
    normal = [event for event in events if isinstance(event, Gaussian)]
    if len(normal) == len(events):
        return max(normal, key=lambda event: event.sensitivity / event.standard_deviation)
    return Parallel(events)


def _count(policies: list[Policy], samples: int) -> int:
    """Return how many observations are made: fewer where each is long."""
    size = 0.0
    for terms in (policy.terms for policy in policies):
        each = 1 / _BITS_AT_ONCE if terms.mechanism.message_bits == 1 else terms.mechanism.report_size
        person = terms.messages * each
        size += max(1, terms.honest) * person
    return min(samples // 8, max(_LEAST, int(samples * _BYTES / size)))


def _largest_group(mechanism: AnyMechanism) -> int:
    """Return the arm that most people have, where arms are groups that are seen: an arm may have nobody."""
    return int(np.argmax(mechanism.layout.shares[0])) if isinstance(mechanism, GroupedBit) else 0


def _sampler(spec: Spec, policies: list[Policy], people: tuple[TargetPerson, TargetPerson]) -> Sampler:
    """Add up what all rounds that ask the target say for the left neighbour."""
    attack = view(spec.privacy.trust)
    targets = [
        Target(
            policy.terms.mechanism,
            (_maker(spec, policy, people[0]), _maker(spec, policy, people[1])),
            _maker(spec, policy, _OTHERS),
            policy.terms.honest,
            _largest_group(policy.terms.mechanism),
        )
        for policy in policies
    ]
    samplers = [attack(target) for target in targets]

    def sample(who: int, count: int) -> Scores:
        return np.asarray(np.sum([one(who, count) for one in samplers], axis=0))

    return sample


def _maker(spec: Spec, policy: Policy, person: TargetPerson) -> Maker:
    def make(coins: Coins) -> Any:
        contexts = np.full((len(coins), spec.dimension), person.place)
        return contribution(spec, policy, contexts, coins, _BEYOND * person.side)

    return make


def rounds(spec: Spec) -> Iterator[Policy]:
    """Play an experiment in which all people observe the middle reward; yield the policies of its rounds."""
    schedule, rng = Schedule(spec), np.random.default_rng(_SEED)
    step = schedule.open(_SEED)
    while step.batch:
        yield step.policy
        contexts = rng.random((step.batch, spec.dimension))
        made = contribution(spec, step.policy, contexts, rng.integers(0, 2**32, step.batch, dtype=np.uint32), 0.0)
        step = schedule.close(step, step.policy.terms.mechanism.simulate(made, rng), _SEED)


def contribution(spec: Spec, policy: Policy, contexts: NDArray[np.float64], coins: Coins, side: float) -> Any:
    """Return what n people contribute whose rewards are ``side`` bounds from the middle of their range.

    Where a report has coins of its own, everybody's choice has the same coins: the adversary sees what was chosen.
    """
    decisions = policy.decide(contexts, np.zeros_like(coins) if policy.fresh_coins else coins)
    reward = spec.reward.middle + side * spec.reward.half_range
    if isinstance(decisions, Plays):
        rewards: NDArray[np.float64] = np.full((len(coins), len(decisions.actions)), reward)
    elif isinstance(decisions, Points) and isinstance(shown := decisions.shown, dict):
        # A report on two points tells the difference of their rewards, which is largest at opposite ends.
        ends = (reward, 2 * spec.reward.middle - reward)
        rewards = np.repeat(policy.read(spec, dict(zip(shown, ends, strict=True)))[0], len(coins), axis=0)
    else:
        rewards = np.repeat(policy.read(spec, reward)[0], len(coins))
    if learned := len(learned_names(spec.reward.adjust)):
        # Numbers from before lie at the ends of their bounds, as rewards do.
        rewards = with_numbers(rewards, np.full((len(coins), learned), np.clip((1 + side) / 2, 0.0, 1.0)))
    return policy.contribute(contexts, coins, decisions, rewards)
