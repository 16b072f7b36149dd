"""Attacks on a curator's sums by the answers to several questions at once, and on their noise."""

from typing import Final

import numpy as np

from privateer_core.mechanisms.feature_sums import GRID, FeatureSums
from privateer_core.primitives.contributions import FeatureValues
from privateer_core.primitives.public_coins import UNIT, SlotLayout
from privateer_core.primitives.questions import FeatureMeans
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, build_part
from privateer_lab.audit.law import NormalLaw
from privateer_lab.audit.views import Coins, Contributor, Target, attack_releases, mechanism_case, model_for

_SIZES: Final = (1, 3, 4)
"""Answers to the question about the arm alone, and to one about each of two features."""
_CLAIM: Final = (1.0, 1e-6)
_VALUE_FACTOR: Final = 9.0
"""Size of values in bounds: protection must not depend on the application's values."""
_RARE_BELOW: Final = 0.1
_N_NOISES: Final = 4_000


def feature_cases(samples: int) -> list[Case]:
    """Build attacks on the farthest participants: opposite values at the same answers, and other answers."""
    opposite = _make_contributor(0, 0, _VALUE_FACTOR), _make_contributor(0, 0, -_VALUE_FACTOR)
    apart = _make_contributor(0, 0, _VALUE_FACTOR), _make_contributor(1, 2, _VALUE_FACTOR)
    return [
        _release_case("release, opposite values", 1.0, opposite, samples),
        _release_case("release, hardly negative", _RARE_BELOW, apart, samples),
    ]


def _release_case(name: str, below: float, neighbours: tuple[Contributor, Contributor], samples: int) -> Case:
    layout = SlotLayout(0, np.array([[UNIT // 5, UNIT // 2]], np.uint32))
    mechanism = FeatureSums.calibrated(FeatureMeans(layout, 2, _SIZES, below=below), *_CLAIM)
    return mechanism_case(name, attack_releases, Target(mechanism, neighbours), _CLAIM, max(2000, samples // 4))


def _make_contributor(arm: int, answer: int, value: float) -> Contributor:
    """Build the contributor of a participant who gives this answer to every question that has several answers."""

    def contribute(coins: Coins) -> FeatureValues:
        count = len(coins)
        answers = np.tile([0, answer, answer], (count, 1))
        return FeatureValues(coins, np.full(count, arm), answers, np.full(count, value))

    return contribute


def feature_parts() -> list[MechanismPart]:
    """Return the noise of a sum of values and of a count, of which participants with opposite values differ by 2."""
    mechanism = FeatureSums(1, (1,), (1,), (1,), standard_deviation=float(GRID))
    ends = GRID * np.array([[1, 1], [-1, 1]])
    noise = Noise((NormalLaw(mechanism.standard_deviation),) * 2, (0, 1), ends)

    def observe(neighbour: int, count: int) -> Integers:
        # Each participant has a sum and a count of his own.
        wide = FeatureSums(1, (count,), (1,), (1,), standard_deviation=mechanism.standard_deviation)
        zeros, values = np.zeros(count, np.int64), np.full(count, _VALUE_FACTOR * (1 - 2 * neighbour))
        contribution = FeatureValues(zeros.astype(np.uint32), zeros, np.arange(count)[:, None], values)
        records = wide.parse(wide.randomize(contribution, SecureNoise()).tobytes())
        release = wide.release(wide.add(wide.empty(), records), SecureNoise())
        return np.rint(release.sums / wide.step).astype(np.int64).reshape(2, count).T

    model = model_for(attack_releases)
    return [build_part("noise of a release", mechanism, model, "RoundedNormal.draw", observe, noise, _N_NOISES)]
