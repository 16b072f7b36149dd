"""Privacy records of published promises have the papers' figures, ours, and a note on both."""

from typing import Any

import msgspec
import pytest

from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record import Record, make_record
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.spec.spec import Spec
from privateer_papers.published_trust import FIGURES_NOTE, PUBLISHED

INSTANCES = [(name, spec) for name in sorted(ALGORITHMS) for spec in algorithm(name).spec.instances().values()]


def linear(epsilon: float, delta: float) -> Record:
    """The record of paper 2's linear bandit under a promise."""
    tables: dict[str, Any] = {
        "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 6000},
        "context": {"features": {"x1": {"low": 0.0, "high": 1.0}}},
        "privacy": {"model": "local", "epsilon": epsilon, "delta": delta},
        "algorithm": {"name": "paper-2-linear"},
    }
    return make_record(parse_spec(tables), {})


def test_a_promise_that_does_not_hold_has_the_papers_figures_and_ours() -> None:
    record = linear(10.0, 0.25)
    [claim] = record.certificate.claims
    assert (record.epsilon, record.delta) == (10.0, 0.25)
    assert (claim.epsilon, claim.delta) == (10.0, pytest.approx(0.789, abs=0.001))
    assert FIGURES_NOTE in record.certificate.assumes
    [certificate] = read_certificates(msgspec.to_builtins(record)).values()
    assert all(verdict.holds for verdict in recompute(certificate))


def test_a_promise_that_holds_has_the_papers_figures() -> None:
    record = linear(0.5, 1e-5)
    [claim] = record.certificate.claims
    assert (claim.epsilon, claim.delta) == (record.epsilon, record.delta) == (0.5, 1e-5)
    assert FIGURES_NOTE in record.certificate.assumes


@pytest.mark.parametrize(("name", "spec"), INSTANCES, ids=[f"{name}-{spec.privacy.model}" for name, spec in INSTANCES])
def test_records_of_published_promises_alone_have_the_note_on_figures(name: str, spec: Spec) -> None:
    published = spec.privacy.trust.calibration == PUBLISHED and spec.privacy.trust.promises
    assert (FIGURES_NOTE in make_record(spec, {}).certificate.assumes) == published, name
