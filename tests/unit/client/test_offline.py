"""Choices by an exported policy: the vectors, no network, and files that cannot be followed."""

import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_client import InvalidValueWarning, OfflinePolicy
from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.answer.export import read_export
from privateer_core.errors import InputError, SpecError
from tests.documents import exports, vectors, wire
from tests.support.publications import published

EXPORTS = json.loads((wire.FEW / "exports.json").read_text())["exports"]
PLAIN = EXPORTS[0]["document"]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an offline policy asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.filterwarnings("ignore::privateer_core.errors.InvalidValueWarning")
@pytest.mark.parametrize("case", EXPORTS, ids=lambda case: case["name"])
def test_an_exported_policy_chooses_the_arms_of_the_vectors(case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "experiment.json"
    file.write_text(json.dumps(case["document"]))
    policy = OfflinePolicy.load(file)
    assert [policy.choose(person["context"], coins=person["slot"]) for person in case["people"]] == [
        person["arm"] for person in case["people"]
    ]
    assert {person["arm"] for person in case["people"]} <= set(policy.options)
    assert (policy.experiment, policy.version, policy.status) == ("test", 4, "stopped")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_decides_offline(name: str) -> None:
    spec = next(iter(algorithm(name).spec.instances().values()))
    body = published(spec, version=4)
    policy = OfflinePolicy(exports.build_export(spec, body))
    context = dict.fromkeys(policy.features, 0.5)
    assert policy.choose(context, coins=5) == policy.choose(context, coins=5)
    assert policy.choose(context)


def test_coins_follow_the_shares_of_the_policy() -> None:
    """4,000 draws of an arm with a share of 1/3: 5 standard errors are .037, missed once in a million."""
    policy = OfflinePolicy(read_export(PLAIN, "FILE"))
    row = next(row for row in PLAIN["policy"]["shows"]["bins"] if len(row["arms"]) == 3)
    context = {name: (row["lower"][j] + row["upper"][j]) / 2 for j, name in enumerate(policy.features)}
    chosen = [policy.choose(context) for _ in range(4000)]
    for arm, share in row["arms"].items():
        assert np.mean([choice == arm for choice in chosen]) == pytest.approx(share, abs=0.04)


def test_a_missing_feature_is_named_offline() -> None:
    policy = OfflinePolicy(read_export(PLAIN, "FILE"))
    with pytest.raises(InputError, match="x2: missing"):
        policy.choose({"x1": 0.5})
    with pytest.raises(InputError, match="coins"):
        policy.choose({"x1": 0.5, "x2": 0.5}, coins=2**32)
    with pytest.warns(InvalidValueWarning):
        policy.choose({"x1": "high", "x2": 0.5})


def test_unusable_exports_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "experiment.json"
    with pytest.raises(SpecError, match="cannot read"):
        OfflinePolicy.load(file)
    file.write_text(json.dumps(PLAIN)[:-9])
    with pytest.raises(SpecError, match="damaged, or not JSON"):
        OfflinePolicy.load(file)
    file.write_text(json.dumps(PLAIN | {"version": 5}))
    with pytest.raises(SpecError, match="is damaged"):
        OfflinePolicy.load(file)
    for lie in ({"version": 5}, {"experiment": "other"}):
        forged = exports.redigest(PLAIN | lie | {"digest": None})
        with pytest.raises(SpecError, match=r"cannot be followed|is not the version"):
            OfflinePolicy(read_export(forged, "FILE"))


def test_another_policy_than_the_specs_is_refused() -> None:
    (_, spec, body), (_, _, other) = vectors.cases()[0], vectors.cases()[4]
    document = exports.decode_export(exports.build_export(spec, body))
    other_document = exports.decode_export(exports.build_export(vectors.cases()[4][1], other))
    forged = document | {"publication": other_document["publication"]}
    with pytest.raises(SpecError, match="is damaged"):
        read_export(exports.redigest(forged | {"digest": None}), "FILE")
