"""Attacks on every part by itself: each draw that hides something has its own claim and its own law."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from privateer_client.participation import Participation
from privateer_core.plugins import Plugins
from privateer_lab.audit.case import ANY, CHANNELS, Integers, MechanismPart, Noise
from privateer_lab.audit.law import Law, UniformLaw
from privateer_lab.audit.mechanisms.bounded_vectors import vector_parts
from privateer_lab.audit.mechanisms.events import event_parts
from privateer_lab.audit.mechanisms.groups import group_parts
from privateer_lab.audit.mechanisms.hits import hit_parts
from privateer_lab.audit.mechanisms.keyed import keyed_parts
from privateer_lab.audit.mechanisms.moments import moment_parts
from privateer_lab.audit.mechanisms.running_sums import running_parts
from privateer_lab.audit.network.sealed_reports import ALONE, LIMITS, opened
from privateer_shuffler.shuffle import Groups, RandomBelow, RandomPlaces

PARTS: Final = Plugins[Callable[[], list[MechanismPart]]](
    "privateer.parts", "distribution that brings it", "--mechanism"
)
"""What returns the parts of other mechanisms than the core's, by a name of theirs."""
HIDES_NOTHING: Final = frozenset({"bernoulli", "Ball.on_grid", "BitVectors._integers"})
"""What mechanisms draw beside their parts: rounding, on which accuracy alone depends."""
__all__ = ["HIDES_NOTHING", "MechanismPart", "parts"]
_COINS, _RESTARTS, _BATCHES = 6_000, 400, 4_000
_PLACES: Final = 16
_NEIGHBOURS: Final = ((0.1, 1.0), (0.9, 0.0))
"""Contexts and rewards of two people: coins and places must have the same law for both."""


def parts() -> list[MechanismPart]:
    """Return all parts."""
    keyed = [*keyed_parts(), *event_parts(), *group_parts(), *hit_parts()]
    own = [*keyed, *vector_parts(), *running_parts(), *moment_parts()]
    return [*own, *device_parts(), *(part for made in PARTS.values() for part in made())]


def device_parts() -> list[MechanismPart]:
    """Return the parts that belong to no mechanism; of each its law alone is claimed."""
    bytes_of_coins: tuple[Law, ...] = (UniformLaw(256),) * 4
    places: tuple[Law, ...] = (UniformLaw(_PLACES),) * 1
    return [
        _part("coins of a device", _coins, bytes_of_coins, _COINS),
        _part("coins of a device that starts again", _restarted, bytes_of_coins * 2, _RESTARTS),
        _part("places of a batch", _places, places, _BATCHES),
        _part("places of one kind in a batch of kinds", _places_of_a_kind, places, _BATCHES),
    ]


def _part(name: str, observe: Callable[[int, int], Integers], laws: tuple[Law, ...], count: int) -> MechanismPart:
    noise = Noise(laws, tuple(range(len(laws))), np.zeros((2, len(laws)), np.int64))
    return MechanismPart(name, CHANNELS, ANY, ANY, "", None, 0.0, observe, noise.score, noise.surprise, count)


def _device() -> Participation:
    return Participation(opened(ALONE)[0].publication, "audit", LIMITS)


def _bytes(coins: Any) -> Integers:
    return np.ascontiguousarray(coins).astype("<u4").view(np.uint8).reshape(len(coins), -1).astype(np.int64)


def _coins(who: int, count: int) -> Integers:
    """Return coins as a device has drawn them when it has seen its context and its reward."""
    device, (context, reward) = _device(), _NEIGHBOURS[who]
    contexts, coins = np.full((count, 1), context), device.coins(count)
    made = device.policy.contribute(contexts, coins, device.decide(contexts, coins), np.full(count, reward))
    return _bytes(made.coins)


def _restarted(who: int, count: int) -> Integers:
    """Return the first coins of a device, and those after it starts again: neither say anything of the other."""
    del who
    return _bytes(np.array([[int(_device().coins(1)[0]) for _ in range(2)] for _ in range(count)]))


def _places(who: int, count: int) -> Integers:
    """Return the place of the first person to arrive, or of the last."""
    return np.array([_order(RandomPlaces(range(_PLACES), RandomBelow()))[-who] for _ in range(count)])[:, None]


def _order(places: RandomPlaces) -> list[int]:
    return [places.draw() for _ in range(_PLACES)]


def _places_of_a_kind(who: int, count: int) -> Integers:
    """Return the place of the first person's message of a kind, or the last person's, among those of that kind."""
    drawn = [Groups(range(2 * _PLACES), _PLACES, 1, 2, RandomBelow()).draw(_PLACES) for _ in range(count)]
    return np.array([order[1 if who == 0 else -1] - _PLACES for order in drawn])[:, None]
