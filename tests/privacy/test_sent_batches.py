"""Shuffled batches of every algorithm, from the client library to opened messages: a lost permutation is caught."""

import numpy as np
import pytest

from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.privacy.trust import Crowd
from privateer_core.spec.spec import Spec
from privateer_lab.audit import whole_experiments as experiments
from privateer_lab.audit.case import Case
from privateer_lab.audit.law import bound_losses
from privateer_lab.audit.sealed_reports import batch_cases
from tests.privacy.planted import no_permutation

ALARM = 1e-6
"""Chance that one true claim is called broken, over the choice of the seed."""
SAMPLES, FEW_SAMPLES = 200_000, 20_000
"""Samples of an audit with 160 to 320 batches, and with the fewest."""
PROVING_SAMPLES = 100_000
"""Samples of an audit with 160 batches, by day."""


def is_shuffled(spec: Spec) -> bool:
    return spec.privacy.trust.crowd is Crowd.BATCH and not spec.privacy.trust.is_simulated


SHUFFLED = [name for name in ALGORITHMS if any(map(is_shuffled, algorithm(name).spec.instances().values()))]


def cases_of(name: str, samples: int) -> list[Case]:
    """Return the attacks on one algorithm, and calibrate no experiment of another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "ALGORITHMS", (name,))
        return batch_cases(samples, {name})


def is_claim_consistent(case: Case) -> bool:
    left, right = (case.sample(neighbour, case.count) for neighbour in (0, 1))
    return bound_losses(left, right, case.event, case.epsilon, case.delta, ALARM).is_consistent_with(case.epsilon)


@pytest.mark.parametrize(
    ("name", "instance", "samples"),
    [
        ("bandit", ", shuffle-hidden", PROVING_SAMPLES),
        *(pytest.param(name, "", SAMPLES, marks=pytest.mark.nightly) for name in SHUFFLED),
    ],
)
def test_a_shuffler_that_keeps_the_order_is_caught(
    name: str, instance: str, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: reports stay in the order of arrival. Under `as-local` each keeps the promise by itself."""
    monkeypatch.setattr("os.urandom", np.random.default_rng(41).bytes)
    cases = [case for case in cases_of(name, FEW_SAMPLES) if case.name.endswith(instance)]
    assert cases
    assert [case.name for case in cases if not is_claim_consistent(case)] == []
    no_permutation(monkeypatch)
    ordered = [case for case in cases_of(name, samples) if case.name.startswith("first places")]
    is_caught = {case.name: not is_claim_consistent(case) for case in ordered if case.name.endswith(instance)}
    assert [name for name, caught in is_caught.items() if not caught and "as-local" not in name] == []


def test_every_kind_of_shuffled_report_is_attacked_in_batches() -> None:
    kinds = {case.name.rpartition(", ")[2] for case in cases_of("linear", FEW_SAMPLES)}
    assert kinds == {"shuffle", "as-local", "messages"}
