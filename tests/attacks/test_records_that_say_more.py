"""A privacy record says more than its rounds bear out, or what a terminal obeys: `account verify` refuses it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.privacy.record import make_record
from privateer_core.privacy.record_verification import read_certificates
from privateer_lab.cli.command_line import main
from tests.support.records import SPECS, record_of, rounds_of
from tests.support.specs import SHUFFLE, tables

Change = Callable[[dict[str, Any]], object]
LARGE = parse_spec(tables({**SHUFFLE, "experiment.horizon": 3_000_000, "experiment.round_size": 500_000}))
"""So many people that a report may cost all that its limit lets it."""


def large() -> dict[str, Any]:
    return dict(json.loads(msgspec.json.encode(make_record(LARGE, rounds_of(LARGE, 3)))))


def of_rounds(name: str, value: object) -> Change:
    return lambda record: [row.update({name: value}) for row in record["rounds"]]


def refused(record: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as error:
        read_certificates(record)
    assert str(error.value.field).endswith(field), str(error.value)
    assert len(str(error.value)) < 500


TEXTS = ["a\x1b[2Jb", "a\x07", "a\nb", "\u202eb", "a" * 3_000_000, "a" * 256]


@pytest.mark.parametrize("text", TEXTS, ids=["escape", "bell", "line", "direction", "megabytes", "a little too long"])
def test_no_organisation_writes_to_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    record = record_of("shuffle", 3)
    of_rounds("organisation", text)(record)
    with pytest.raises(SpecError):
        read_certificates(record)
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    with pytest.raises(SystemExit) as ended:
        main(["account", "verify", str(path)])
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert len(said.out + said.err) < 500
    assert not set("\x1b\x07\u202e") & set(said.err)


@pytest.mark.parametrize("key", ["a\x1b[2J", "0" * 17, "g" * 16, "0" * 3_000_000])
def test_a_shuffler_is_the_id_of_a_key(key: str) -> None:
    record = record_of("shuffle", 3)
    of_rounds("shuffler", key)(record)
    refused(record, "record")


def test_organisations_as_servers_write_them_are_taken() -> None:
    record = record_of("shuffle", 3)
    of_rounds("organisation", "Clinique de l'Étoile & Söhne")(record)
    of_rounds("shuffler", "0123456789abcdef")(record)
    assert read_certificates(record)


def test_a_limit_is_not_above_what_reports_were_made_for() -> None:
    record = large()
    assert read_certificates(record)
    assert record["privacy"]["local_epsilon_max"] == 4.0
    for raised in (16.0, 8.0, 4.5):
        record["privacy"]["local_epsilon_max"] = raised
        refused(record, ".mechanism")


BY_MODEL = [name for name, spec in SPECS.items() if not spec.privacy.trust.batched]


@pytest.mark.parametrize("name", [*BY_MODEL, "phased-shuffle", "phased-reduced"])
@pytest.mark.parametrize("count", [0, 3])
def test_a_limit_that_does_nothing_is_not_raised(name: str, count: int) -> None:
    record = record_of(name, count)
    record["privacy"]["local_epsilon_max"] = 16.0
    refused(record, "privacy.local_epsilon_max")


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if not spec.capabilities.closes_early])
def test_rounds_that_wait_for_all_do_not_close_with_fewer(name: str) -> None:
    record = record_of(name, 3)
    record["least_share"] = 0.9
    refused(record, "least_share")


@pytest.mark.parametrize("share", [1.0, 0.8])
def test_rounds_close_with_no_more_than_were_counted_on(share: float) -> None:
    record = record_of("phased-reduced", 3)
    assert record["least_share"] == 0.6
    record["least_share"] = share
    refused(record, ".honest")


def test_what_a_spec_says_in_vain_is_not_in_its_record() -> None:
    spec = parse_spec(tables({"privacy.local_epsilon_max": 9.0, "privacy.min_batch": 7}))
    record = make_record(spec, rounds_of(spec, 2))
    assert (record.privacy["local_epsilon_max"], record.privacy["min_batch"]) == (4.0, 7)


def test_a_certificate_has_few_words(tmp_path: Path) -> None:
    certificate = record_of("shuffle", 3)["certificate"]
    certificate["assumes"] = 5000 * ["x" * 1000]
    refused(certificate, "certificate")
    claim = certificate["claims"][0]
    certificate["assumes"], certificate["claims"] = [], [claim | {"against": f"number {one}"} for one in range(65)]
    refused(certificate, "certificate")
