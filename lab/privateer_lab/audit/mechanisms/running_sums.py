"""Attacks on running sums that a curator releases each round, and on their parts."""

from dataclasses import replace
from typing import Any, Final, Literal

import msgspec
import numpy as np

from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.primitives.contributions import RowValues
from privateer_core.primitives.row_ball import ARMS_MAX, GRID, RowBall
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, Sampler, build_part
from privateer_lab.audit.law import NormalLaw, Scores, noise_p_value
from privateer_lab.audit.views import attack_releases, model_for

_N_STEPS: Final = 6
_PROMISE: Final = (1.0, 1e-6)
_N_PART_STEPS: Final = 3
_N_RELEASES: Final = 4_000
_STANDARD_DEVIATION: Final = float(GRID)


def running_cases(samples: int) -> list[Case]:
    """Build attacks on both kinds of noise; the neighbours are at opposite ends of an interval."""
    count = min(ARMS_MAX, max(2000, samples // 4))
    cases = []
    for kind in ("root", "tree"):
        mechanism = RunningVectors.from_promise(_one_sum_each(1), *_PROMISE, kind, _N_STEPS)
        event, model = mechanism.release_event, model_for(attack_releases)
        assert event is not None
        name, sample = f"{_N_STEPS} releases, {kind}", _build_likelihood_ratio_sampler(mechanism)
        cases.append(Case(name, RunningVectors.__name__, model, "tight", *_PROMISE, event, sample, count))
    return cases


def _one_sum_each(count: int) -> RowBall:
    """Return the vectors of ``count`` participants of whom each moves a sum of his own."""
    return RowBall(count, 1, 0.0)


def _build_likelihood_ratio_sampler(mechanism: RunningVectors) -> Sampler:
    """Return a sampler of the fresh noise's log-likelihood ratio; a run's sums are independent observations."""

    def sample(neighbour: int, count: int) -> Scores:
        wide = msgspec.structs.replace(mechanism, ball=_one_sum_each(count))
        releases = _release_all(wide, mechanism.steps, 1, 1.0 - 2 * neighbour)
        exact = round(1.0 / wide.ball.step) * np.eye(1, mechanism.steps, dtype=np.int64)
        left, right = (np.square(_fresh_noise(wide, releases, sign * exact)).sum(axis=1) for sign in (1, -1))
        return np.asarray((right - left) / (2 * mechanism.standard_deviation**2))

    return sample


def running_parts() -> list[MechanismPart]:
    """Return a part for each release of both kinds of noise, and for the first release after a restart."""
    kinds: tuple[Literal["root", "tree"], ...] = ("root", "tree")
    return [_release_part(kind, step) for kind in kinds for step in range(1, _N_PART_STEPS + 2)]


def _release_part(kind: Literal["root", "tree"], step: int) -> MechanismPart:
    """Return the noise of one release as a part, with the target in its round."""
    mechanism = RunningVectors(_one_sum_each(1), _STANDARD_DEVIATION, kind, _N_PART_STEPS)
    laws, tested = (NormalLaw(_STANDARD_DEVIATION),) * (_N_PART_STEPS + 1), (step - 1,)
    exact = np.zeros((2, _N_PART_STEPS + 1), np.int64)
    exact[:, step - 1] = GRID, -GRID
    fresh = Noise(laws, tested, exact)

    def observe(neighbour: int, count: int) -> Integers:
        wide = msgspec.structs.replace(mechanism, ball=_one_sum_each(count))
        return _release_all(wide, _N_PART_STEPS + 1, step, 1.0 - 2 * neighbour)

    def score(observed: Integers) -> Scores:
        # Earlier releases say the same of the fresh noise for both neighbours.
        return fresh.score(_fresh_noise(mechanism, observed, exact[0]) + exact[0])

    def p_value(neighbour: int, observed: Integers) -> float:
        return noise_p_value(_fresh_noise(mechanism, observed, exact[neighbour]), laws, tested)

    name = f"{kind}, noise of release {step}" + (" after 3 steps" if step > _N_PART_STEPS else "")
    part = build_part(name, mechanism, model_for(attack_releases), "RoundedNormal.draw", observe, fresh, _N_RELEASES)
    return replace(part, score=score, p_value=p_value)


def _release_all(mechanism: RunningVectors, n_releases: int, step: int, value: float) -> Integers:
    """Return all releases, (sums, releases) in grid points, with a participant of each sum in round ``step`` alone."""
    count, noise, releases = mechanism.ball.arms, SecureNoise(), []
    total: Any = mechanism.empty()
    for current_step in range(1, n_releases + 1):
        if current_step == step:
            coins, arms, rows = np.zeros(count, np.uint32), np.arange(count), np.ones((count, 1))
            records = mechanism.randomize(RowValues(coins, arms, rows, np.full(count, value)), noise)
            total = mechanism.add(total, records)
        release, remainder = mechanism.release_and_carry(total, noise)
        releases.append(np.rint(release.sums / mechanism.ball.step).astype(np.int64))
        total = mechanism.start_total_after(mechanism, remainder)
    return np.stack(releases, axis=1)


def _fresh_noise(mechanism: RunningVectors, releases: Integers, exact: Integers) -> Integers:
    """Return the fresh noise of each release given the rounds' exact sums; noise restarts after all steps."""
    noise, fresh = releases - exact, []
    for k in range(noise.shape[1]):
        start = k - k % mechanism.steps
        row = mechanism.factorization.row(k - start + 1)
        fresh.append(noise[:, k] + np.rint(noise[:, start:k] @ row[:-1]).astype(np.int64))
    return np.stack(fresh, axis=1)
