"""Publications that no honest server makes: refused before anything is paid for."""

from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer.codec import encode
from privateer.errors import InputError, PrivateerError
from privateer.phased import PhasedSpec
from privateer.verification import Limits
from privateer.wire.publication import Publication, encode_publication
from privateer_client import Client, Ledger
from privateer_client.phase import Phase
from privateer_server.rounds import first_round
from tests.support.phased import phased_spec

KEY = X25519PrivateKey.generate().public_key().public_bytes_raw()
UNLIMITED = float("inf")
LIMITS = Limits(epsilon=UNLIMITED, delta=0.5, local_epsilon=UNLIMITED, honest_fraction=1.0, min_batch=1, curator=True)
FEW = {"experiment.horizon": 600, "algorithm.alpha": 0.2, "algorithm.clients": 20}


def forged(spec: PhasedSpec, terms: dict[str, Any] | None = None, **policy: Any) -> bytes:
    """The first phase of a spec, with changes."""
    first = first_round(spec, KEY)
    told = replace(first.policy, terms=replace(first.policy.terms, **(terms or {})), **policy)
    return encode_publication(Publication(first.round, spec.model_dump_json().encode(), encode(told)))


@pytest.mark.parametrize("trust", ["local", "shuffle", "central", "none"])
def test_the_honest_one_is_taken(trust):
    spec = phased_spec(FEW, trust)
    phase = Phase(forged(spec), "test", LIMITS)
    assert len(phase.reports(np.zeros((1, len(phase.plays))))) == 1


@pytest.mark.parametrize("trust", ["local", "shuffle"])
def test_a_seed_that_would_fail_once_the_report_is_paid_for(trust):
    with pytest.raises(PrivateerError):
        Phase(forged(phased_spec(FEW, trust), {"seed": -1}), "test", LIMITS)


def test_rows_that_rise_by_overflowing():
    spec = phased_spec(FEW, "local")
    rows = np.array([0, 1 << 62, (1 << 63) - 1, -(1 << 62), 5], np.int64)
    assert (np.diff(rows) > 0).all()
    plays = np.ones(5, np.int64)
    with pytest.raises(PrivateerError):
        Phase(forged(spec, {"coordinates": 5}, active=rows, support=rows, plays=plays), "test", LIMITS)


@pytest.mark.parametrize(
    "wrong", [None, 5, [1], {}, "nan", "inf", "text", "truth", "huge"], ids=lambda value: str(value)[:8]
)
def test_wrong_averages_are_refused_and_cost_nothing(tmp_path, wrong):
    spec = phased_spec(FEW, "local")
    ledger = Ledger(tmp_path / "ledger.db")
    asked = Client(
        "http://server",
        limits=LIMITS,
        ledger=ledger,
        transport=httpx.MockTransport(lambda _: httpx.Response(200, content=forged(spec))),
    ).join_phase("test")
    values = {"nan": float("nan"), "inf": float("inf"), "text": "1", "truth": True, "huge": 10**400}
    told = dict.fromkeys(asked.plays, values[wrong]) if isinstance(wrong, str) else wrong
    with pytest.raises(InputError):
        asked.report(told)
    assert ledger.payments() == []
