"""The audit lets true claims stand, comes close to them, and names the mechanism of every planted defect."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer.contributions import KeyedValues
from privateer.privacy.noise import SecureNoise
from privateer.privacy.normal import RoundedNormal
from privateer.privacy.response import RandomizedResponse, SubsetResponse
from privateer.privatizers import vector_bits
from privateer.privatizers.laplace import LaplaceCells
from privateer.privatizers.signed_symbol import SignedSymbol
from privateer.vectors import Ball
from privateer_client import Ledger, session
from privateer_client.sealing import Sealer
from privateer_lab.audit.run import CHANNELS, mechanisms
from privateer_shuffler.shuffle import Places
from tests.contract import registry
from tests.support.noise import SeededNoise
from tests.unit.lab.test_cli import run

Patch = Callable[[pytest.MonkeyPatch], None]


def audited(capsys: pytest.CaptureFixture[str], *names: str, samples: int = 20_000) -> tuple[int, dict[str, Any]]:
    options = [word for name in names for word in ("--mechanism", name)]
    code, out, _ = run(capsys, "audit", "--json", "--samples", str(samples), *options)
    return code, dict(json.loads(out))


def test_every_privatizer_is_attacked() -> None:
    assert {kind.__name__ for kind in registry.privatizers()} | {CHANNELS} == mechanisms()


def test_true_claims_hold(capsys: pytest.CaptureFixture[str]) -> None:
    code, result = audited(capsys)
    assert (code, result["holds"], result["broken"]) == (0, True, [])
    for finding in result["findings"]:
        assert finding["lower_bound"] is None or finding["lower_bound"] <= finding["epsilon"]


def test_lower_bounds_come_close_to_exact_claims(capsys: pytest.CaptureFixture[str]) -> None:
    """At epsilon 1 the best proof is above 80 % of the claim, for randomized response and for normal noise."""
    _, result = audited(capsys, "SignedSymbol", samples=50_000)
    assert max(f["lower_bound"] for f in result["findings"] if f["epsilon"] == 1.0) >= 0.85
    _, result = audited(capsys, "GaussianVectors", samples=300_000)
    assert max(f["lower_bound"] for f in result["findings"]) >= 0.8


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    made = RandomizedResponse.randomize

    def weak(self: RandomizedResponse, truth: Any, noise: Any) -> Any:
        return made(RandomizedResponse(2 * self.epsilon, self.symbols), truth, noise)

    patch.setattr(RandomizedResponse, "randomize", weak)


def half_the_noise_of_subsets(patch: pytest.MonkeyPatch) -> None:
    made = SubsetResponse.randomize

    def weak(self: SubsetResponse, own: Any, noise: Any) -> Any:
        return made(replace(self, epsilon=2 * self.epsilon), own, noise)

    patch.setattr(SubsetResponse, "randomize", weak)


def noise_in_the_own_bin_alone(patch: pytest.MonkeyPatch) -> None:
    """Paper 1's public code: no noise for bins that the person is not in."""
    made = LaplaceCells.randomize

    def leaky(self: LaplaceCells, people: KeyedValues, noise: Any) -> Any:
        noisy = made(self, people, noise).reshape(len(people), 2, self.layout.keys, self.layout.groups)
        own = np.arange(self.layout.keys)[None, :] == people.keys[:, None]
        return np.where(own[:, None, :, None], noisy, 0).reshape(len(people), -1).astype("<i4")

    patch.setattr(LaplaceCells, "randomize", leaky)


def slots_that_suit_the_context(patch: pytest.MonkeyPatch) -> None:
    """A device that draws slots until the sign of its bin is 1: the public sign then tells the bin."""
    made = SignedSymbol.randomize

    def choosy(self: SignedSymbol, people: KeyedValues, noise: Any) -> Any:
        slots = people.slots.copy()
        keys = np.maximum(people.keys, 0)
        for _ in range(20):
            wrong = self.layout.hashes(slots, keys) >> np.uint64(63) == 1
            slots[wrong] = np.random.default_rng().integers(0, 2**32, int(wrong.sum()), dtype=np.uint32)
        return made(self, replace(people, slots=slots), noise)

    patch.setattr(SignedSymbol, "randomize", choosy)


def no_permutation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Places, "draw", lambda self: self._free.pop(0))


def a_size_that_tells_the_value(patch: pytest.MonkeyPatch) -> None:
    made = Sealer.seal
    patch.setattr(Sealer, "seal", lambda self, report: made(self, report.rstrip(b"\0")))


def noise_anew_for_every_retry(patch: pytest.MonkeyPatch) -> None:
    def report(self: Any, reward: float) -> Any:
        for attempt in range(self._retries + 1):
            body = self._pay_and_seal(reward)
            try:
                return self._outcome(self._http.post(self._door, content=body), attempt > 0)
            except session.httpx.TransportError:
                continue
        return session.Outcome.UNSENT

    patch.setattr(Ledger, "pay", lambda *_: None)
    patch.setattr(session.Session, "report", report)


def a_seeded_generator(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SecureNoise, "words", lambda _, count: SeededNoise(7).words(count))


def a_curator_with_half_the_noise(patch: pytest.MonkeyPatch) -> None:
    made = RoundedNormal.draw
    patch.setattr(RoundedNormal, "draw", lambda self, count, noise: made(self, count, noise) // 2)


def half_the_bits(patch: pytest.MonkeyPatch) -> None:
    made = vector_bits.binomial

    def weak(count: int, trials: int, chance: float, noise: Any) -> Any:
        return made(count, trials // 4, chance, noise) + (trials - trials // 4) // 2

    patch.setattr(vector_bits, "binomial", weak)


def no_clipping(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ball, "clip", lambda _, vectors: vectors)


DEFECTS: list[tuple[Patch, str]] = [
    (half_the_noise, "SignedSymbol"),
    (half_the_noise_of_subsets, "VectorSymbol"),
    (noise_in_the_own_bin_alone, "LaplaceCells"),
    (slots_that_suit_the_context, "SignedSymbol"),
    (no_permutation, "SignedSymbol"),
    (a_size_that_tells_the_value, CHANNELS),
    (noise_anew_for_every_retry, CHANNELS),
    (a_seeded_generator, CHANNELS),
    (a_curator_with_half_the_noise, "CuratedSums"),
    (a_curator_with_half_the_noise, "CuratedVectors"),
    (a_curator_with_half_the_noise, "GaussianVectors"),
    (half_the_bits, "BitVectors"),
    (half_the_bits, "ShareVectors"),
    (no_clipping, "GaussianVectors"),
    (no_clipping, "LaplaceVectors"),
]


@pytest.mark.parametrize(("plant", "mechanism"), DEFECTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_defect_is_caught_and_named(
    plant: Patch, mechanism: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch)
    code, result = audited(capsys, mechanism, samples=50_000)
    assert (code, result["broken"]) == (1, [mechanism])


def test_an_unknown_mechanism_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "audit", "--mechanism", "magic")
    assert (code, out) == (2, "")
    assert "--mechanism: no such mechanism" in err
