"""Whole experiments under attack: true claims stand; people who are asked again, or are not clipped, are caught."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.mechanisms.vectors import vector_bits
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Draw
from privateer_core.spec.spec import Spec
from privateer_lab.audit import views
from privateer_lab.audit import whole_experiments as experiments
from privateer_lab.audit.case import Case
from privateer_lab.audit.law import LowerBounds, bound_losses
from privateer_lab.audit.suite import run_audit
from privateer_lab.audit.whole_experiments import experiment_cases
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.rounds.schedule import Schedule

Patch = Callable[[pytest.MonkeyPatch], None]
DRAWN = ("local", "local-normal", "central", "shuffle")
"""Instances of an algorithm that draws people, in their tight calibrations."""
LONG = ("trial", "partition", "linear", "additive")
"""Algorithms with so many attacks that all of them are made by night."""
ALARM = 1e-6
"""Chance that one true claim is called broken."""


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise in every run of the tests; what is attacked by the command has the operating system's."""
    noise = SeededNoise(17)
    monkeypatch.setattr(views, "SecureNoise", lambda: noise)


def cases_of(name: str, samples: int) -> list[Case]:
    """Return the attacks on an algorithm; building the attacks on others would run their experiments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "ALGORITHMS", (name,))
        cases = experiment_cases(samples)
    assert {case.mechanism for case in cases} <= {name}
    return cases


def run_attacks(name: str, instances: tuple[str, ...], samples: int = 60_000) -> dict[str, tuple[LowerBounds, bool]]:
    """Return the bounds that attacks on an algorithm's instances prove, by case, and whether the claims are valid."""
    bounds_by_case = {}
    for case in cases_of(name, samples):
        if case.name.partition(",")[0] in instances:
            left, right = (case.sample(neighbour, case.count) for neighbour in (0, 1))
            proved = bound_losses(left, right, case.event, case.epsilon, case.delta, ALARM)
            bounds_by_case[case.name] = proved, proved.excess <= 0 and proved.lower_bound <= case.epsilon
    return bounds_by_case


def claims(spec: Spec) -> bool:
    """Whether a round of the experiment makes a claim; a paper's that adds no noise has none that could be attacked."""
    return spec.privacy.trust.promises and Schedule(spec).open(1, 1).policy.terms.event is not None


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_claim_of_an_algorithm_is_attacked(name: str) -> None:
    names = {case.name.partition(",")[0] for case in cases_of(name, 1000)}
    assert names == {key for key, spec in algorithm(name).spec.instances().items() if claims(spec)}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in LONG else ()) for name in ALGORITHMS]
)
def test_the_audit_has_these_attacks_and_true_claims_stand(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "ALGORITHMS", (name,))
    total, findings = run_audit(1000, {name})
    finding_list = list(findings)
    assert len(finding_list) == total
    # What a paper claims in vain is found out.
    assert [finding.holds for finding in finding_list] == [not finding.unsafe for finding in finding_list]
    assert total >= len(cases_of(name, 1000))


@pytest.mark.nightly
def test_proofs_come_close_to_the_claims() -> None:
    proofs = run_attacks("phased", DRAWN, 200_000)
    assert all(stands for _, stands in proofs.values())
    assert proofs["local, opposite rewards"][0].lower_bound > 3.4
    assert proofs["local-normal, opposite rewards"][0].lower_bound > 0.7
    assert proofs["central, opposite rewards"][0].lower_bound > 2.5


@pytest.mark.parametrize(
    ("samples", "local", "central"), [(60_000, 3.1, 0.5), pytest.param(200_000, 3.3, 0.5, marks=pytest.mark.nightly)]
)
def test_proofs_for_people_who_come_once_are_close_to_the_claims(samples: int, local: float, central: float) -> None:
    proofs = run_attacks("partition", ("local", "central"), samples)
    assert all(stands for _, stands in proofs.values())
    for pair in ("opposite rewards", "another context"):
        assert proofs[f"local, {pair}"][0].lower_bound > local
        assert proofs[f"central, {pair}"][0].lower_bound > central


def the_same_people_in_every_round(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draw, "select_participants", lambda self: np.arange(self.places))


def sampling_with_replacement(patch: pytest.MonkeyPatch) -> None:
    """Every round draws anew from the whole population."""
    select = Draw.select_participants

    def select_anew(draw: Draw) -> Any:
        return select(msgspec.structs.replace(draw, seed=draw.seed + draw.start, start=0))

    patch.setattr(Draw, "select_participants", select_anew)


def unclipped_rewards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ball, "clip", lambda _, vectors: vectors)


def bits_that_everybody_can_subtract(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(vector_bits, "draw_binomial", lambda count, trials, _probability, _noise: np.full(count, trials // 2))


@pytest.mark.parametrize(
    ("fault", "breaks"),
    [
        pytest.param(the_same_people_in_every_round, DRAWN, marks=pytest.mark.nightly),
        (sampling_with_replacement, DRAWN),
        # A symbol is as private whatever it is made of.
        pytest.param(unclipped_rewards, ("local-normal", "central", "shuffle"), marks=pytest.mark.nightly),
        pytest.param(bits_that_everybody_can_subtract, ("shuffle",), marks=pytest.mark.nightly),
    ],
)
@pytest.mark.nightly
def test_planted_faults_are_caught(fault: Patch, breaks: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    proofs = run_attacks("phased", DRAWN, 40_000) | run_attacks("phased", ("shuffle",), 300_000)
    assert {name.partition(",")[0] for name, (_, stands) in proofs.items() if not stands} == set(breaks)
