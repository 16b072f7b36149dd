"""An experiment with features of every kind over HTTP: simulated people, then devices with what they have."""

import warnings
from pathlib import Path

import httpx
import pytest

from privateer_client import Client, Ledger, Limits, ReportStatus
from privateer_client.inputs import encode_context
from privateer_core.errors import InvalidValueWarning
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import free_port, run_services
from tests.support.specs import make_spec

FEATURES = {
    "country": {"levels": ["NL", "DE", "FR"]},
    "hours": {"low": 0, "high": 80, "missing": True},
    "premium": {"boolean": True},
}
SPEC = make_spec(
    {
        "context.features": FEATURES,
        "experiment.horizon": 6001,
        "experiment.round_size": 250,
        "privacy.epsilon": 4.0,
    }
)


def test_a_value_without_a_place_is_missing_and_others_keep_theirs() -> None:
    """A level that the spec does not list has columns of its own; what is no such value is missing, and said."""
    context = {"country": "DE", "hours": 20, "premium": True}
    encoded = encode_context(context, SPEC.features)
    assert encoded.shape == (1, SPEC.dimension)
    for name, value in (("country", "Atlantis"), ("premium", "sure"), ("hours", "38")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            odd = encode_context(context | {name: value}, SPEC.features)
        assert not (odd == encoded).all()
        assert [warning.category for warning in caught] == ([] if value == "Atlantis" else [InvalidValueWarning])
        assert not any(str(value) in str(warning.message) for warning in caught)
    assert (encode_context(context | {"hours": None}, SPEC.features) == odd).all()


@pytest.mark.nightly
def test_levels_and_missing_values_are_learned_from_and_devices_may_omit_values(tmp_path: Path) -> None:
    """Local privacy, epsilon 4: 6,000 simulated people lose less than with the best single arm; then one more."""
    with run_services(tmp_path, free_port(), free_port()) as at:
        body = SPEC.model_dump(mode="json", exclude_none=True)
        headers = {"Authorization": f"Bearer {at.token}"}
        assert httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).status_code == 201
        features = httpx.get(f"{at.server}/experiments/test").json()["spec"]["context"]["features"]
        assert features["country"] == FEATURES["country"]
        population = {"name": "mixed", "function": 1, "relevant": ["country", "premium"]}
        options = {"users": 6000, "population": population, "batch": 50, "seed": 1}
        result = run_load("test", at.server, at.shuffler, sender_key=at.sender_key, **options)
        assert result.accepted == 6000
        assert result.regret < 0.8 * result.best_constant_regret
        bins = httpx.get(f"{at.server}/experiments/test/policy").json()["policy"]["shows"]["bins"]
        assert any(condition["feature"] in ("country", "premium") for row in bins for condition in row["where"])
        ledger = Ledger(tmp_path / "ledger.db")
        with Client(at.server, limits=Limits(epsilon=4.0, local_epsilon=4.0), ledger=ledger) as client:
            session = client.join("test")
            context = {"country": "Atlantis", "hours": None, "premium": True}
            for wrong in ({"country": None}, {"premium": "sure"}, {"hours": "38"}):
                with pytest.warns(InvalidValueWarning):
                    assert session.choose(context | wrong, fresh=True) in SPEC.options
            assert session.choose(context, fresh=True) in SPEC.options
            assert session.report(1.0) is ReportStatus.ACCEPTED
        assert httpx.get(f"{at.server}/experiments/test").json()["status"] == "finished"
