"""Attacks on sums that a curator releases again and again: as a whole, and part by part."""

from dataclasses import replace
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import GRID, Ball
from privateer_core.sampling.entropy import SecureNoise
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, Sampler, noise_part
from privateer_lab.audit.law import NormalLaw, noise_surprise
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.views import model_of, releases

_STEPS: Final = 6
_PROMISE: Final = (1.0, 1e-6)
_COUNT_MAX: Final = 100_000
_PART_STEPS: Final = 3
_COUNT: Final = 4_000
_DEVIATION: Final = float(GRID)


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


def running_parts() -> list[MechanismPart]:
    """Return a part for every release of both kinds of noise, and of the first one when noise has begun anew."""
    kinds: tuple[Literal["root", "tree"], ...] = ("root", "tree")
    return [_part(kind, step) for kind in kinds for step in range(1, _PART_STEPS + 2)]


def _part(kind: Literal["root", "tree"], step: int) -> MechanismPart:
    """Return the noise of one release as a part; the person is in its round, and later releases are not looked at."""
    mechanism = RunningVectors(Ball("max", 1.0, 1), _DEVIATION, kind, _PART_STEPS)
    laws, own = (NormalLaw(_DEVIATION),) * (_PART_STEPS + 1), (step - 1,)
    exact = np.zeros((2, _PART_STEPS + 1), np.int64)
    exact[:, step - 1] = GRID, -GRID
    fresh = Noise(laws, own, exact)

    def observe(who: int, count: int) -> Integers:
        return _all_releases(msgspec.structs.replace(mechanism, ball=Ball("max", 1.0, count)), step, 1.0 - 2 * who)

    def score(seen: Integers) -> Scores:
        # What the releases before say of the fresh noise is the same for both neighbours.
        return fresh.score(_fresh_noise(mechanism, seen, exact[0]) + exact[0])

    def surprise(who: int, seen: Integers) -> float:
        return noise_surprise(_fresh_noise(mechanism, seen, exact[who]), laws, own)

    name = f"{kind}, noise of release {step}" + (" after 3 steps" if step > _PART_STEPS else "")
    part = noise_part(name, mechanism, model_of(releases), "RoundedNormal.draw", observe, fresh, _COUNT)
    return replace(part, score=score, surprise=surprise)


def _all_releases(mechanism: RunningVectors, step: int, value: float) -> Integers:
    """Return all releases, (coordinates, releases) in grid points, with a person in one round alone."""
    count, noise, seen = mechanism.ball.coordinates, SecureNoise(), []
    total = mechanism.empty()
    for now in range(1, _PART_STEPS + 2):
        if now == step:
            person = BoundedVectors(np.zeros(1, np.uint32), np.full((1, count), value))
            total = mechanism.add(total, mechanism.randomize(person, noise))
        release, left = mechanism.settle(total, noise)
        seen.append(np.rint(release.sums / mechanism.ball.step).astype(np.int64))
        total = mechanism.resume(mechanism, left)
    return np.stack(seen, axis=1)


def _fresh_noise(mechanism: RunningVectors, seen: Integers, exact: Integers) -> Integers:
    """Return the fresh noise of each release, if rounds had these sums; noise begins anew after so many steps."""
    noise, fresh = seen - exact, []
    for k in range(noise.shape[1]):
        begun = k - k % mechanism.steps
        row = mechanism.factorization.row(k - begun + 1)
        fresh.append(noise[:, k] + np.rint(noise[:, begun:k] @ row[:-1]).astype(np.int64))
    return np.stack(fresh, axis=1)
