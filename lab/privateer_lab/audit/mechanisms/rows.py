"""Attacks on a curator's sums of residuals and second moments of rows, and on their noise."""

from typing import Final

import numpy as np

from privateer_core.mechanisms.vectors.row_sums import RowSums
from privateer_core.primitives.contributions import RowValues
from privateer_core.primitives.row_ball import GRID, RowBall
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, build_part
from privateer_lab.audit.law import NormalLaw
from privateer_lab.audit.views import Coins, Contributor, Target, attack_releases, mechanism_case, model_for

_CLAIM: Final = (1.0, 1e-6)
_SHARE: Final = 0.3
_FACTOR: Final = 9.0
"""Size of values and rows in bounds: protection must not depend on the application's numbers."""
_N_NOISES: Final = 4_000


def row_cases(samples: int) -> list[Case]:
    """Build attacks on the farthest participants: opposite values at the same row, and at rows a little apart."""
    row, other = (1.0, 0.0), (0.95, 0.3)
    pairs = {
        "release, opposite values": (_make_contributor(row, _FACTOR), _make_contributor(row, -_FACTOR)),
        "release, another row": (_make_contributor(row, _FACTOR), _make_contributor(other, -_FACTOR)),
    }
    mechanism = RowSums.calibrated(RowBall(2, 2, _SHARE), *_CLAIM)
    count = max(2000, samples // 4)
    return [
        mechanism_case(name, attack_releases, Target(mechanism, pair), _CLAIM, count) for name, pair in pairs.items()
    ]


def _make_contributor(row: tuple[float, float], value: float) -> Contributor:
    """Build the contributor of a participant with this row and value at the first arm."""

    def contribute(coins: Coins) -> RowValues:
        count = len(coins)
        rows = np.tile(_FACTOR * np.array(row), (count, 1))
        return RowValues(coins, np.zeros(count, np.int64), rows, np.full(count, value))

    return contribute


def row_parts() -> list[MechanismPart]:
    """Return the part that tests the noise of two sums; a participant's opposite values move the first sum by 2."""
    mechanism = RowSums(RowBall(2, 1, 0.0), float(GRID))
    ends = GRID * np.array([[1, 0], [-1, 0]])
    noise = Noise((NormalLaw(mechanism.standard_deviation),) * 2, (0, 1), ends)

    def observe(neighbour: int, count: int) -> Integers:
        # Each participant has two sums of his own, and moves the first.
        wide = RowSums(RowBall(2 * count, 1, 0.0), mechanism.standard_deviation)
        coins, arms, values = np.zeros(count, np.uint32), 2 * np.arange(count), np.full(count, 1.0 - 2 * neighbour)
        contribution = RowValues(coins, arms, np.full((count, 1), _FACTOR), _FACTOR * values)
        records = wide.parse(wide.randomize(contribution, SecureNoise()).tobytes())
        release = wide.release(wide.add(wide.empty(), records), SecureNoise())
        return np.rint(release.sums / wide.ball.step).astype(np.int64).reshape(count, 2)

    model = model_for(attack_releases)
    return [build_part("noise of a release", mechanism, model, "RoundedNormal.draw", observe, noise, _N_NOISES)]
