"""Every draw of every mechanism is a part of the audit; true parts hold, and a part with too little noise is caught.

Words of the operating system are replaced by seeded ones. A part that is right fails with a chance of 1e-6 over the
choice of the seed, for its bound and for its law.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.mechanisms import MECHANISMS
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.screened_moments import ScreenedMoments
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_lab.audit.case import CHANNELS, MechanismPart
from privateer_lab.audit.law import BinomialLaw, LaplaceLaw, Law, NormalLaw, UniformLaw, counts_p_value, noise_p_value
from privateer_lab.audit.suite import ROUNDING, all_parts
from privateer_lab.simulation.scores import SeededNoise
from privateer_papers.paper_1.laplace_cells import LaplaceCells
from tests.contract.subjects import Subject, instances
from tests.privacy import parts_table
from tests.privacy.planted_parts import PLANTED

ALARM = 1e-6
PARTS = {f"{part.mechanism}: {part.name}": part for part in all_parts()}
SLOW = "ScreenedMoments"
"""Every observation is a release by itself, so a run by day makes half of the blocks, and no choices."""
HALVED = ("CentralSums: ", "channels: coins of a device that starts again")
"""Others of which half the observations are enough by day: half the noise is then seen with a law below 1e-20."""
QUICK_BY_DAY = [
    pytest.param(name, marks=pytest.mark.nightly if part.mechanism == SLOW and part.sampler == "draw_choice" else ())
    for name, part in PARTS.items()
]


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(23)
    monkeypatch.setattr("os.urandom", rng.bytes)


def by_day(part: MechanismPart) -> MechanismPart:
    if part.mechanism == SLOW:
        return replace(part, count=part.count // (4 if part.sampler == "draw_choice" else 2))
    return replace(part, count=part.count // 2) if f"{part.mechanism}: {part.name}".startswith(HALVED) else part


class Traced(SeededNoise):
    """Remembers which sampler asked for words, as a mechanism called it; or the mechanism's own function that did."""

    def __init__(self) -> None:
        super().__init__(5)
        self.samplers: set[str] = set()

    def words(self, count: int) -> Any:
        frame, below = sys._getframe(1), sys._getframe(1)
        while not any(place in frame.f_code.co_filename for place in ("privateer_core/mechanisms", "laplace_cells")):
            assert frame.f_back is not None
            frame, below = frame.f_back, frame
        self.samplers.add(below.f_code.co_qualname)
        return super().words(count)


def samplers_of(subject: Subject) -> set[str]:
    """Return the samplers that draw words between participants' records and the release."""
    noise, mechanism = Traced(), subject.mechanism
    reports = mechanism.randomize(subject.people(np.random.default_rng(3)), noise)
    mechanism.release_and_carry(mechanism.add(mechanism.empty(), mechanism.parse(reports.tobytes())), noise)
    return noise.samplers


def test_every_sampler_that_a_mechanism_calls_is_a_part() -> None:
    called_samplers: dict[str, set[str]] = {kind.__name__: set() for kind in [*list[type](MECHANISMS), LaplaceCells]}
    for subject in instances().values():
        called_samplers[type(subject.mechanism).__name__] |= samplers_of(subject) - ROUNDING
    declared_samplers: dict[str, set[str]] = {}
    for part in all_parts():
        declared_samplers.setdefault(part.mechanism, set()).add(part.sampler)
    del declared_samplers[CHANNELS]
    assert called_samplers == declared_samplers


def test_an_undeclared_draw_of_a_mechanism_is_detected() -> None:
    """Planted: a curator of vectors that also releases a noisy number of participants."""
    subject = next(each for each in instances().values() if type(each.mechanism).__name__ == "CentralVectors")

    class MechanismWithExtraDraw(type(subject.mechanism)):  # type: ignore[misc]
        def release(self, total: Any, noise: Any) -> Any:
            vectors = super().release(total, noise)
            draw_extra_words(noise)
            return vectors

    def draw_extra_words(noise: Any) -> None:
        exec(compile("noise.words(1)", "privateer_core/mechanisms/more.py", "exec"), {"noise": noise})

    mechanism = MechanismWithExtraDraw(subject.mechanism.ball, subject.mechanism.standard_deviation or 300.0)
    assert samplers_of(replace(subject, mechanism=mechanism)) - samplers_of(subject)


def test_every_part_has_a_unique_name_and_a_planted_defect() -> None:
    assert len(PARTS) == len(all_parts())
    assert {(part.mechanism, part.name) for part in all_parts()} == set(PLANTED)


@pytest.mark.parametrize("name", QUICK_BY_DAY)
def test_a_true_part_holds(name: str) -> None:
    part_result = by_day(PARTS[name]).examine(ALARM)
    assert part_result.is_satisfied, part_result


@pytest.mark.parametrize("name", QUICK_BY_DAY)
def test_half_the_noise_of_a_part_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part = by_day(PARTS[name])
    PLANTED[part.mechanism, part.name][0](monkeypatch, 2)
    part_result = part.examine(ALARM)
    assert part_result.p_value < ALARM
    if part_result.bounds is not None:
        assert not part_result.bounds.is_consistent_with(part.epsilon or 0.0)


@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if part.mechanism != SLOW])
def test_noise_that_is_drawn_elsewhere_or_once_for_many_has_another_law(name, monkeypatch):
    part = by_day(PARTS[name])
    PLANTED[part.mechanism, part.name][1](monkeypatch)
    assert part.examine(ALARM).p_value < ALARM


def _half_of_the_values_block(patch: pytest.MonkeyPatch) -> None:
    """Half the standard deviation beside the value, and a quarter of its square's."""
    fget = ScreenedMoments._noise_deviations.fget  # type: ignore[attr-defined]
    factors = np.ones(5)
    factors[-1] = 0.5
    patch.setattr(ScreenedMoments, "_noise_deviations", property(lambda self: fget(self) * np.outer(factors, factors)))


def _half_of_pairs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        CellPairs, "_laplace", property(lambda self: DiscreteLaplace.from_min_scale(self.scale * self.unit / 2))
    )


def _half_of_cells(patch: pytest.MonkeyPatch) -> None:
    fget = LaplaceCells.scale.fget  # type: ignore[attr-defined]
    patch.setattr(LaplaceCells, "scale", property(lambda self: fget(self) // 2))


OWN_FIGURES = {
    "ScreenedMoments: block, products with the value": _half_of_the_values_block,
    "ScreenedMoments: block, the square of the value": _half_of_the_values_block,
    "CellPairs: sums of values": _half_of_pairs,
    "CellPairs: sums of the rest": _half_of_pairs,
    "CellTriples: sums of squares": _half_of_pairs,
    "CellTriples: sums of products with the rest": _half_of_pairs,
    "LaplaceCells: rewards of all cells": _half_of_cells,
    "LaplaceCells: counts of all cells": _half_of_cells,
}


@pytest.mark.parametrize("name", OWN_FIGURES)
def test_a_mechanism_with_wrong_own_figures_fails_its_audit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law and the claim come from the promise: a mechanism that is wrong about its own noise is caught."""
    OWN_FIGURES[name](monkeypatch)
    part_result = by_day({f"{part.mechanism}: {part.name}": part for part in all_parts()}[name]).examine(ALARM)
    assert part_result.p_value < ALARM
    assert part_result.bounds is not None
    assert not part_result.bounds.is_consistent_with(PARTS[name].epsilon or 0.0)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", PARTS)
def test_each_defect_is_caught_every_time_with_all_samples(name: str) -> None:
    """Plants half the noise twenty times (three times where it is slow), and once a quarter and reused noise.

    The alarm is that of the whole command.
    """
    part = PARTS[name]
    reduce_noise, reuse_noise = PLANTED[part.mechanism, part.name]
    for factor in [2] * (3 if part.mechanism == SLOW else 20) + [4]:
        with pytest.MonkeyPatch.context() as patch:
            reduce_noise(patch, factor)
            part_result = part.examine(parts_table.ALARM)
        assert part_result.p_value < parts_table.ALARM
        assert part_result.bounds is None or not part_result.bounds.is_consistent_with(part.epsilon or 0.0)
    with pytest.MonkeyPatch.context() as patch:
        reuse_noise(patch)
        assert part.examine(parts_table.ALARM).p_value < parts_table.ALARM


LAWS: list[tuple[Law, Any]] = [
    (NormalLaw(700.0), lambda rng, n: np.rint(rng.normal(0, 700, n)).astype(int)),
    (LaplaceLaw(300), lambda rng, n: rng.geometric(-np.expm1(-1 / 300), n) - rng.geometric(-np.expm1(-1 / 300), n)),
    (BinomialLaw(64, 0.5), lambda rng, n: rng.binomial(64, 0.5, n)),
    (BinomialLaw(80, 0.2), lambda rng, n: rng.binomial(80, 0.2, n)),
    (UniformLaw(256), lambda rng, n: rng.integers(0, 256, n)),
]


@pytest.mark.parametrize(("law", "draw"), LAWS, ids=lambda value: type(value).__name__)
def test_p_values_of_laws_are_never_too_small(law: Law, draw: Any) -> None:
    """Of 1000 p-values at most 150 are below .1 and 30 below .01: a true law exceeds that with a chance of 1e-6."""
    rng = np.random.default_rng(9)
    p_values = np.array([noise_p_value(draw(rng, (300, 2)).reshape(300, 2), (law, law), (0, 1)) for _ in range(1000)])
    assert (p_values < 0.1).sum() <= 150
    assert (p_values < 0.01).sum() <= 30


@pytest.mark.parametrize(("law", "draw"), LAWS, ids=lambda value: type(value).__name__)
def test_chances_of_cells_are_those_of_the_law(law: Law, draw: Any) -> None:
    """In half a million draws, where a wrong edge shows: planted, cells that are a little further on."""
    values = draw(np.random.default_rng(10), 500_000)
    for shift, right in ((0, True), (20 if isinstance(law, NormalLaw | LaplaceLaw) else 1, False)):
        moved = np.minimum(values + shift, law.below - 1) if isinstance(law, UniformLaw) else values + shift
        cells, chances = law.assign_cells(moved, 16)
        assert chances.sum() == pytest.approx(1)
        assert (counts_p_value(np.bincount(cells, minlength=len(chances)), chances) > ALARM) is right


def test_the_table_of_the_page_has_every_part_and_proves_half_the_noise_broken() -> None:
    """Shape and claims of the table; its digits are those of the run that wrote it."""
    rows = parts_table.read_table()
    documented_claims = [tuple(row[:3]) for row in rows]
    claims = [(part.mechanism, part.name, parts_table.claim(part)) for part in all_parts()]
    assert documented_claims == claims
    for row, part in zip(rows, all_parts(), strict=True):
        right, half = (float(cell.removeprefix("p = ")) for cell in row[3:])
        if part.epsilon is None:
            assert half < parts_table.ALARM < right
        else:
            assert right <= part.epsilon < half
