"""Experiments of every kind over HTTP: contexts, populations, events, measured gains, and effects."""

import os
import warnings
from pathlib import Path

import httpx
import pytest

from privateer_client import Client, Ledger, Limits, ReportStatus
from privateer_client.inputs import encode_context
from privateer_core.errors import InvalidValueWarning
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.spec.spec import Spec
from privateer_lab.cli.input_files import load_spec
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_lab.toml_file import read_tables
from tests.integration.test_pipeline import create, wait_for_the_end
from tests.support.sealing import sealed_reports
from tests.support.server_and_shuffler import pair
from tests.support.servers import SHUFFLED
from tests.support.specs import SHUFFLE, make_spec

FEATURES = {
    "country": {"levels": ["NL", "DE", "FR"]},
    "hours": {"low": 0, "high": 80, "missing": True},
    "premium": {"boolean": True},
}
SPEC = make_spec(
    {"context.features": FEATURES, "experiment.horizon": 6001, "experiment.round_size": 250, "privacy.epsilon": 4.0}
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


GARDEN = Path(__file__).parents[2] / "examples" / "garden-shuffle.toml"


def run_people(folder: Path, spec: Spec, population: dict[str, object], people: int):
    with run_services(folder, free_port(), free_port()) as at:
        body = spec.model_copy(update={"population": None}).model_dump(mode="json", exclude_none=True)
        headers = {"Authorization": f"Bearer {at.token}"}
        assert httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).status_code == 201
        name = spec.experiment.name
        return run_load(
            name,
            at.server,
            at.shuffler,
            sender_key=at.sender_key,
            users=people,
            population=population,
            batch=50,
            seed=1,
        )


@pytest.mark.nightly
def test_a_csv_file_teaches_over_http(tmp_path):
    """Shuffle privacy, epsilon 1, 12,000 people: more right than any single arm would be (.372 of the rows)."""
    population = read_tables(GARDEN, [], "SPEC")["population"]
    result = run_people(tmp_path, load_spec(GARDEN, ["experiment.horizon=12000"]), population, 12_000)
    assert result.accepted == 12_000
    assert result.best_constant_regret == pytest.approx(12_000 * (1 - 223 / 600), abs=1)
    assert result.reward / 12_000 > 0.45


def test_the_truth_at_the_time_over_http(tmp_path):
    """Arms that swap twice and end where they began: no arm is better than another on the whole."""
    changes = {"experiment.horizon": 3000, "experiment.round_size": 500}
    population = {"name": "peaks", "drift": {"name": "swap", "period": 1000}}
    result = run_people(tmp_path, make_spec(changes), population, 3000)
    assert result.accepted == 3000
    assert result.best_constant_regret == pytest.approx(result.uniform_regret, rel=0.03)
    assert result.uniform_regret == pytest.approx(0.41388 * 3000, rel=0.05)


async def test_an_experiment_that_asks_for_events_has_a_record(tmp_path: Path) -> None:
    (tmp_path / "trusted").mkdir()
    rare = {
        "reward.base_rate": 0.005,
        "privacy.min_batch": 1000,
        "experiment.round_size": 1000,
        "experiment.horizon": 20_000,
    }
    async with pair(tmp_path) as services:
        assert (await services.api.create(SHUFFLED | rare)).status_code == 201
        for version in (1, 2):
            publication = await services.api.publication()
            record = (await services.api.client.get("/experiments/test/privacy")).json()
            row = record["rounds"][-1]
            assert record["certificate"]["claims"], "something is claimed"
            if version == 1:
                assert row["mechanism"]["type"] == "event-symbol"
                assert row["mechanism"]["keys"] >= 2
            await services.uploads(publication, sealed_reports(publication, 1000, seed=version))


MEASURED = {"experiment.horizon": 3000, "experiment.round_size": 1000, "experiment.evaluation_fraction": 0.34}
SPECS: dict[str, Spec] = {
    "shuffle": make_spec({**SHUFFLE, **MEASURED, "population.name": "peaks"}),
    "central": make_spec({**MEASURED, "privacy.model": "central", "privacy.delta": 1e-6, "population.name": "peaks"}),
}


@pytest.mark.parametrize("model", SPECS)
def test_the_last_people_measure_the_gain(model: str, tmp_path: Path) -> None:
    with run_services(tmp_path, free_port(), free_port()) as at:
        measure_gain(at, SPECS[model])


def measure_gain(at: Services, spec: Spec) -> None:
    create(at, spec)
    run_load("test", at.server, at.shuffler, sender_key=at.sender_key)
    wait_for_the_end(at)
    answer = httpx.get(f"{at.server}/experiments/test/answer", timeout=60).json()
    conclusion, gain = answer["conclusion"], answer["result"]["gain"]
    assert gain["people"] == 1020
    assert conclusion["is_measured"]
    assert conclusion["gain"] == gain
    assert conclusion["over_chance"]["low"] <= conclusion["over_chance"]["value"]
    record = httpx.get(f"{at.server}/experiments/test/privacy", timeout=60).json()
    assert [row["received"] for row in record["rounds"]][-1] == 1020
    for certificate in read_certificates(record).values():
        assert all(verdict.holds for verdict in recompute(certificate))


ADULT_SPEC = Path(__file__).parents[2] / "examples" / "adult-shuffle.toml"


@pytest.mark.data
def test_adult_over_http_beats_the_best_constant(tmp_path: Path) -> None:
    """Mean reward of the best constant arm: .290."""
    data = Path(os.environ["PRIVATEER_ADULT"])
    spec = load_spec(ADULT_SPEC, []).without_people()
    with run_services(tmp_path, free_port(), free_port()) as at:
        headers = {"Authorization": f"Bearer {at.token}"}
        body = spec.model_dump(mode="json", exclude_none=True)
        assert httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).status_code == 201
        paths = f"{data},{data.with_name('adult.test.gz')}"
        result = run_load(
            "adult-shuffle",
            at.server,
            at.shuffler,
            sender_key=at.sender_key,
            users=48842,
            population={"name": "adult", "path": paths},
            batch=50,
            seed=0,
        )
    assert result.people == 48842
    assert result.accepted > 45000
    assert result.reward / result.people >= 0.325
