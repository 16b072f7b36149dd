"""The audit lets true claims stand, comes close to them, and names the mechanism of every planted defect."""

import inspect
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_client import AsyncClient, Client
from privateer_client.participation import Participation
from privateer_client.session import Session
from privateer_core.accounting.events import Gaussian
from privateer_core.accounting.gaussian import gaussian_epsilon
from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.mechanisms import MECHANISMS
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.vectors.vector_noise import GaussianVectors
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.privacy.trust import TRUST
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit import suite as whole
from privateer_lab.audit import whole_experiments as experiments
from privateer_lab.audit.case import CHANNELS, Case
from privateer_lab.audit.law import bound_losses
from privateer_lab.audit.suite import attacked_claims, target_names
from privateer_lab.simulation.scores import SeededNoise
from privateer_papers.paper_1.laplace_cells import LaplaceCells
from privateer_papers.published_trust import PUBLISHED_TRUST, classic_noise
from tests.privacy.planted import DEFECTS
from tests.unit.lab.cli.test_command_line import run


def audited(capsys: pytest.CaptureFixture[str], *names: str, samples: int = 20_000) -> tuple[int, dict[str, Any]]:
    options = [word for name in names for word in ("--mechanism", name)]
    code, out, _ = run(capsys, "audit", "--json", "--samples", str(samples), *options)
    return code, dict(json.loads(out))


def only(name: str, patch: pytest.MonkeyPatch, mechanism: str) -> None:
    """The audit has the attacks of this name alone, and plays no experiments of others."""
    patch.setattr(experiments, "ALGORITHMS", tuple({mechanism} & set(ALGORITHMS)))
    cases, checks = whole.build_cases, whole.channel_checks
    patch.setattr(whole, "all_parts", list)
    patch.setattr(whole, "coin_parts", lambda *_: [])
    # What the command may attack, and what it attacks, are made once.
    patch.setattr(whole, "target_names", lambda: {mechanism})
    patch.setattr(whole, "build_cases", lambda *selection: [case for case in cases(*selection) if case.name == name])
    patch.setattr(
        whole, "channel_checks", lambda: {channel: check for channel, check in checks().items() if channel == name}
    )


@pytest.fixture(scope="module")
def all_cases() -> list[Case]:
    """All attacks; building them runs experiments."""
    return whole.build_cases(1000)


@pytest.fixture
def shared_cases(all_cases: list[Case], monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """All attacks, which the command reuses and does not build again."""
    monkeypatch.setattr(whole, "build_cases", lambda *_: all_cases)
    return all_cases


BY_DAY = {
    "permuted batch": 200,
    "permuted batch, two messages": 150,
    "seen arm, first round": 300,
    "seen arm, rare arm, another bin": 300,
    "seen arm, rare arm, opposite rewards": 300,
    "choice and block": 100,
    "choice of the rest": 100,
    "block of moments": 100,
    "the billboard": 100,
}
"""Samples of the attacks that take a second or more with theirs; the nightly run has all of them."""
ATTACKS = 75
"""Attacks that there are at least, channels included."""


def test_every_mechanism_and_every_algorithm_is_attacked(shared_cases: list[Case]) -> None:
    assert (
        {kind.__name__ for kind in [*list[type](MECHANISMS), LaplaceCells]}
        | {CHANNELS, *ALGORITHMS, "paper-3-privatelasso"}
        == target_names()
        == {mechanism for mechanism, _, _ in attacked_claims()} | {CHANNELS}
    )
    assert len(shared_cases) + len(whole.channel_checks()) >= ATTACKS


def test_attacks_have_unique_names(shared_cases: list[Case]) -> None:
    names = [(case.mechanism, case.model, case.calibration, case.name) for case in shared_cases]
    assert len(set(names)) == len(names)


@pytest.mark.usefixtures("shared_cases")
def test_every_trust_model_and_calibration_is_attacked() -> None:
    """Each mechanism where a trust model uses it, and each algorithm's instances, if an epsilon is promised.

    Records that a paper's learner keeps without noise make no claim: the algorithm does.
    """
    served = {
        (kind.__name__, row.name, row.calibration)
        for row in (*TRUST.values(), *PUBLISHED_TRUST.values())
        if row.promises
        for serving in row.serves.values()
        for kind in serving.mechanisms
        if (kind, row.calibration) != (CellPairs, "published")
    }
    specs = [(name, spec) for name in ALGORITHMS for spec in algorithm(name).spec.instances().values()]
    claims = {(name, s.privacy.model, s.privacy.trust.calibration) for name, s in specs if s.privacy.trust.promises}
    nameless = {("paper-3-privatelasso", "central", "published")}  # what no spec can name claims nothing
    assert served | claims == attacked_claims() - nameless


def by_day(case: Case) -> Case:
    """An attack with no more samples than a run by day has the time for."""
    n_samples = case.count if case.unsafe else case.count // 5  # a claim that is false has to be refuted
    return replace(case, count=min(n_samples, BY_DAY.get(case.name, n_samples)))


@pytest.mark.parametrize(
    ("samples", "algorithms"), [(5000, ()), pytest.param(20_000, ALGORITHMS, marks=pytest.mark.nightly)]
)
def test_true_claims_hold(samples, algorithms, monkeypatch, capsys):
    """Once in 10,000 runs a true claim is called broken, by the audit's own design, with however many samples.

    By day it plays every attack with few samples, since each defect planted below is caught with 50,000; algorithms
    and most parts are audited one by one elsewhere.
    """
    monkeypatch.setattr(experiments, "ALGORITHMS", algorithms)
    if not algorithms:
        cases = whole.build_cases
        monkeypatch.setattr(whole, "build_cases", lambda *selection: [*map(by_day, cases(*selection))])
        cheap = [part for part in whole.all_parts() if part.mechanism == "SignedSymbol"]
        monkeypatch.setattr(whole, "all_parts", lambda: cheap)
    code, result = audited(capsys, samples=samples)
    assert (code, result["holds"], result["broken"]) == (0, True, [])
    fields = {"attack", "mechanism", "model", "calibration", "epsilon", "delta"}
    for finding in result["findings"]:
        assert set(finding) == fields | {"lower_bound", "confidence", "samples", "verdict", "unsafe", "law"}
        assert finding["verdict"] == ("broken" if finding["unsafe"] else "holds")
        if finding["epsilon"] is not None and not finding["unsafe"]:
            assert finding["lower_bound"] <= finding["epsilon"]
            assert finding["confidence"] == 1 - result["false_alarm"]


@pytest.mark.parametrize(
    ("mechanism", "attack", "samples", "min_share"),
    [
        ("VectorSymbol", "64 symbols in l2", 50_000, 0.85),
        pytest.param("GaussianVectors", "vectors in l2", 200_000, 0.9, marks=pytest.mark.nightly),
        ("CentralSums", "release, opposite rewards", 50_000, 0.8),
        pytest.param("CentralSums", "release, opposite rewards", 200_000, 0.85, marks=pytest.mark.nightly),
        pytest.param("VectorSymbol", "64 symbols in l2", 200_000, 0.9, marks=pytest.mark.nightly),
    ],
)
def test_lower_bounds_come_close_to_exact_claims(mechanism, attack, samples, min_share, monkeypatch, capsys):
    """At epsilon 1 the best proof is at least 80 % of the claim, for randomized response and for normal noise."""
    only(attack, monkeypatch, mechanism)
    _, result = audited(capsys, mechanism, samples=samples)
    assert max(f["lower_bound"] for f in result["findings"] if f["epsilon"] == 1.0) >= min_share


def test_a_published_claim_that_is_false_is_refuted() -> None:
    """Paper 5 takes the classic Gaussian at (10, .25), where it gives delta .79."""
    ball = Ball("l2", 1.0, 4)
    local = GaussianVectors(ball, classic_noise(ball, 10.0, 0.25))
    left, right = (
        local.randomize(BoundedVectors(np.zeros(20_000, np.uint32), np.tile(end, (20_000, 1))), SeededNoise(seed))[:, 0]
        for seed, end in enumerate(np.array([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]]))
    )
    event = Gaussian(local.standard_deviation, ball.sensitivity)
    bounds = bound_losses(left.astype(float), right.astype(float), event, 10.0, 0.25, 1e-4)
    assert 14 < bounds.lower_bound < gaussian_epsilon(0.25, local.standard_deviation / ball.sensitivity)


def test_a_session_accepts_no_seed() -> None:
    with pytest.raises(TypeError):
        SecureNoise(7)  # type: ignore[call-arg]
    for maker in (Participation, Session, Client, AsyncClient):
        assert not {"noise", "seed", "rng", "source"} & set(inspect.signature(maker).parameters)


@pytest.mark.battery("mechanism")
@pytest.mark.parametrize(("plant", "mechanism", "attack"), DEFECTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_defect_is_caught_and_named(plant, mechanism, attack, monkeypatch, capsys):
    plant(monkeypatch)
    only(attack, monkeypatch, mechanism)
    code, result = audited(capsys, mechanism, samples=50_000)
    assert (code, result["broken"]) == (1, [mechanism])
    assert (attack, "broken") in {(finding["attack"], finding["verdict"]) for finding in result["findings"]}


@pytest.mark.nightly
@pytest.mark.parametrize(("plant", "mechanism", "attack"), DEFECTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_defect_is_caught_by_the_whole_audit_of_its_mechanism(plant, mechanism, attack, monkeypatch, capsys):
    """With all of a mechanism's attacks, as the command runs them."""
    plant(monkeypatch)
    code, result = audited(capsys, mechanism, samples=50_000)
    assert (code, result["broken"]) == (1, [mechanism])


@pytest.mark.usefixtures("shared_cases")
def test_an_unknown_mechanism_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "audit", "--mechanism", "magic")
    assert (code, out) == (2, "")
    assert "--mechanism: no such mechanism" in err
