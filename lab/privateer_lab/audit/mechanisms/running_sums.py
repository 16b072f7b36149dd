"""Attacks on sums that a curator tells again and again: the adversary sees every release from the person's on."""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.mechanisms.running_vectors import RunningVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.contributions import BoundedVectors
from privateer_core.sampling.entropy import SecureNoise
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.views import model_of, releases

_STEPS: Final = 6
_PROMISE: Final = (1.0, 1e-6)
_COUNT_MAX: Final = 100_000


def running_cases(samples: int) -> list[Case]:
    """Return attacks on both kinds of noise: the person is at one end of an interval, or at the other."""
    count = min(_COUNT_MAX, max(2000, samples // 4))
    cases = []
    for kind in ("root", "tree"):
        mechanism = RunningVectors.running(Ball("max", 1.0, 1), *_PROMISE, kind, _STEPS)
        event, model = mechanism.released, model_of(releases)
        assert event is not None
        name, sample = f"{_STEPS} releases, {kind}", _sampler(mechanism)
        cases.append(Case(name, RunningVectors.__name__, model, "tight", *_PROMISE, event, sample, count))
    return cases


def _sampler(mechanism: RunningVectors) -> Sampler:
    """Score fresh noise as it must have been if the person is the one neighbour, and if the other.

    One run has an observation in every coordinate, whose noise is its own.
    """

    def sample(who: int, count: int) -> Scores:
        wide = msgspec.structs.replace(mechanism, ball=Ball("max", 1.0, count))
        seen = _releases(wide, 1.0 - 2 * who)
        end = round(1.0 / wide.ball.step)
        left, right = (_fresh(wide, seen, end * side) for side in (1, -1))
        return np.asarray((right - left) / (2 * mechanism.standard_deviation**2))

    return sample


def _releases(mechanism: RunningVectors, value: float) -> NDArray[np.float64]:
    """Return all releases, (steps, coordinates) in grid points, of a person in the first round and nobody later."""
    count, noise = mechanism.ball.coordinates, SecureNoise()
    person = BoundedVectors(np.zeros(1, np.uint32), np.full((1, count), value))
    total, seen = mechanism.add(mechanism.empty(), mechanism.randomize(person, noise)), []
    for _ in range(mechanism.steps):
        release, left = mechanism.settle(total, noise)
        seen.append(np.rint(release.sums / mechanism.ball.step))
        total = mechanism.resume(mechanism, left)
    return np.array(seen)


def _fresh(mechanism: RunningVectors, seen: NDArray[np.float64], first: int) -> Scores:
    """Return sums over steps of squares of the fresh noise, (coordinates,), if ``first`` is the first round's sum."""
    noise = seen.copy()
    noise[0] -= first
    rows = [mechanism.factorization.row(step) for step in range(1, len(noise) + 1)]
    fresh = np.array([row[-1] * noise[k] + np.rint(row[:-1] @ noise[:k]) for k, row in enumerate(rows)])
    return np.asarray(np.square(fresh).sum(axis=0))
