"""Parts of sums that a curator tells again and again: the fresh noise of each release, and when noise begins anew."""

from dataclasses import replace
from typing import Final, Literal

import msgspec
import numpy as np

from privateer_core.mechanisms.running_vectors import RunningVectors
from privateer_core.primitives.clipping import GRID, Ball
from privateer_core.primitives.contributions import BoundedVectors
from privateer_core.sampling.entropy import SecureNoise
from privateer_lab.audit.law import NormalLaw, noise_surprise
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.parts.part import Integers, MechanismPart, Noise, noise_part
from privateer_lab.audit.views import model_of, releases

_STEPS: Final = 3
_COUNT: Final = 4_000
_DEVIATION: Final = float(GRID)


def running_parts() -> list[MechanismPart]:
    """Return a part for every release of both kinds of noise, and of the first one when noise has begun anew."""
    kinds: tuple[Literal["root", "tree"], ...] = ("root", "tree")
    return [_part(kind, step) for kind in kinds for step in range(1, _STEPS + 2)]


def _part(kind: Literal["root", "tree"], step: int) -> MechanismPart:
    """The person is in the round of that release: no earlier one can tell of them, and later ones are not looked at."""
    mechanism = RunningVectors(Ball("max", 1.0, 1), _DEVIATION, kind, _STEPS)
    laws, own = (NormalLaw(_DEVIATION),) * (_STEPS + 1), (step - 1,)
    exact = np.zeros((2, _STEPS + 1), np.int64)
    exact[:, step - 1] = GRID, -GRID
    fresh = Noise(laws, own, exact)

    def observe(who: int, count: int) -> Integers:
        return _releases(msgspec.structs.replace(mechanism, ball=Ball("max", 1.0, count)), step, 1.0 - 2 * who)

    def score(seen: Integers) -> Scores:
        # What the releases before say of the fresh noise is the same for both neighbours.
        return fresh.score(_fresh(mechanism, seen, exact[0]) + exact[0])

    def surprise(who: int, seen: Integers) -> float:
        return noise_surprise(_fresh(mechanism, seen, exact[who]), laws, own)

    name = f"{kind}, noise of release {step}" + (" after 3 steps" if step > _STEPS else "")
    part = noise_part(name, mechanism, model_of(releases), "RoundedNormal.draw", observe, fresh, _COUNT)
    return replace(part, score=score, surprise=surprise)


def _releases(mechanism: RunningVectors, step: int, value: float) -> Integers:
    """All releases, (coordinates, releases) in grid points, with a person in one round alone; coordinates are alike."""
    count, noise, seen = mechanism.ball.coordinates, SecureNoise(), []
    total = mechanism.empty()
    for now in range(1, _STEPS + 2):
        if now == step:
            person = BoundedVectors(np.zeros(1, np.uint32), np.full((1, count), value))
            total = mechanism.add(total, mechanism.randomize(person, noise))
        release, left = mechanism.settle(total, noise)
        seen.append(np.rint(release.sums / mechanism.ball.step).astype(np.int64))
        total = mechanism.resume(mechanism, left)
    return np.stack(seen, axis=1)


def _fresh(mechanism: RunningVectors, seen: Integers, exact: Integers) -> Integers:
    """Fresh noise of each release, if rounds had these sums; noise begins anew after so many steps."""
    noise, fresh = seen - exact, []
    for k in range(noise.shape[1]):
        begun = k - k % mechanism.steps
        row = mechanism.factorization.row(k - begun + 1)
        fresh.append(noise[:, k] + np.rint(noise[:, begun:k] @ row[:-1]).astype(np.int64))
    return np.stack(fresh, axis=1)
