"""``account verify`` refuses documents that a person and the verifier would read differently.

Exit code 0 says that every claim holds, so a document that can be read in two ways must not get it.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.support.records import SPECS, record_of
from tests.unit.lab.cli.test_command_line import run

Change = Callable[[dict[str, Any]], object]


def verify(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> tuple[int, str]:
    """Exit code of ``account verify`` for a file of this text, and what it says on standard error."""
    path = tmp_path / "document.json"
    path.write_text(text)
    code, out, err = run(capsys, "account", "verify", str(path))
    if code == 2:
        assert out == ""
        assert len(err.splitlines()) == 1
    return code, err


@pytest.mark.parametrize("name", SPECS)
def test_honest_records_hold_whatever_wrote_them(capsys, tmp_path, name):
    for count in (1, 2) if not name.startswith("phased") else (1,):
        record = record_of(name, count)
        assert verify(capsys, tmp_path, json.dumps(record)) == (0, "")
        # Other languages write 1 for 1.0, and keys in another order.
        assert verify(capsys, tmp_path, json.dumps(record, sort_keys=True).replace(".0,", ",")) == (0, "")
        assert verify(capsys, tmp_path, json.dumps(record["certificate"])) == (0, "")


def false_claims(record: dict[str, Any]) -> dict[str, Any]:
    """A certificate that promises ten times what is true."""
    false = deepcopy(record["certificate"])
    false["claims"][0]["epsilon"] /= 10
    return dict(false)


def test_a_false_certificate_without_rows_is_detected(capsys, tmp_path):
    assert verify(capsys, tmp_path, json.dumps(false_claims(record_of("sources"))))[0] == 1


def rename_sources(record: dict[str, Any], names: list[str]) -> None:
    for source, name in zip(record["sources"], names, strict=True):
        source["name"] = name


DOCUMENTS: dict[str, Change] = {
    "a source without a name hides the experiment's own certificate": lambda r: (
        rename_sources(r, ["", "abroad"]),
        r.update(certificate=false_claims(r)),
    ),
    "two sources of one name": lambda r: (
        rename_sources(r, ["clinic", "clinic"]),
        r["sources"][0].update(certificate=false_claims(r["sources"][0])),
    ),
    "a name that no spec can have": lambda r: rename_sources(r, ["clinic\n", "abroad"]),
    "a source with sources": lambda r: r["sources"][0].update(
        sources=[{"name": "within", "certificate": false_claims(r)}]
    ),
    "a certificate beside false claims": lambda r: r.update(false_claims(r)),
    "false claims beside a source's": lambda r: r["sources"][0].update(false_claims(r)),
    "a claim beside the record": lambda r: r.update(claims=false_claims(r)["claims"]),
    "a certificate in a certificate": lambda r: r["certificate"].update(certificate=true_of(r)),
    "true for a certificate": lambda r: (r.update(true_of(r)), r.update(certificate=True)),
    "another reader's format": lambda r: r.update(format="privateer/record/1"),
    "certificates of two cohorts exchanged": lambda r: (
        r["sources"][0].update(certificate=r["sources"][1]["certificate"]),
    ),
    "another experiment's certificate": lambda r: r["certificate"].update(experiment="other"),
    "more reports a person": lambda r: r.update(reports_per_person=2),
}


def true_of(record: dict[str, Any]) -> dict[str, Any]:
    return dict(deepcopy(record["certificate"]))


@pytest.mark.parametrize("change", DOCUMENTS.values(), ids=DOCUMENTS)
def test_an_ambiguous_document_is_refused(capsys, tmp_path, change):
    record = record_of("sources")
    change(record)
    code, err = verify(capsys, tmp_path, json.dumps(record))
    assert code == 2
    assert err


@pytest.mark.parametrize("place", ["", "claims", "event"])
@pytest.mark.parametrize("last", [True, False])
def test_a_repeated_key_is_refused(capsys, tmp_path, place, last):
    """Parsers differ in which of two equal keys they take, so that people could be shown a false value."""
    text = json.dumps(record_of("local")["certificate"], indent=1)
    entry = {"": '"experiment": "test"', "claims": '"epsilon": 1.0', "event": '"event": "pure"'}[place]
    assert entry in text
    name = entry.split(":")[0]
    false_value = {"": '"shown"', "claims": "0.1", "event": '"gaussian"'}[place]
    entries = [entry, f"{name}: {false_value}"]
    code, err = verify(capsys, tmp_path, text.replace(entry, ", ".join(entries if last else entries[::-1]), 1))
    assert code == 2
    assert "twice" in err


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_outside_json_is_refused(capsys, tmp_path, number):
    text = json.dumps(record_of("local")["certificate"]).replace(
        '"epsilon": 1.0, "delta"', f'"epsilon": {number}, "delta"'
    )
    code, err = verify(capsys, tmp_path, text)
    assert code == 2
    assert "NaN or infinite" in err


@pytest.mark.parametrize(
    "text", ["[" * 200 + "]" * 200, '{"event":' * 100_000, "1" * 10_000, '{"claims": ' + "9" * 4000 + "}"]
)
def test_depth_and_digits_are_bounded(capsys, tmp_path, text):
    assert verify(capsys, tmp_path, text)[0] == 2


def test_texts_of_a_record_cannot_control_the_terminal(capsys, tmp_path):
    """Escape codes could overwrite a verdict; marks of the table's own language raised an exception."""
    for words in ("\x1b[2Jholds", "two\nlines", ""):
        certificate = record_of("local")["certificate"] | {"assumes": [words]}
        code, err = verify(capsys, tmp_path, json.dumps(certificate))
        assert (code, "printable" in err) == (2, True)
    certificate = record_of("local")["certificate"]
    certificate["claims"][0] |= {"adversary": "[/]", "proof": "[bold]"}
    assert verify(capsys, tmp_path, json.dumps(certificate | {"assumes": ["[/]"]}))[0] == 0
    code, err = verify(capsys, tmp_path, json.dumps(certificate | {"\x1b[2J\n": 1}))
    assert (code, err.strip().isprintable()) == (2, True)


def row(**fields: Any) -> Change:
    return lambda record: record["rounds"][0].update(fields)


def mechanism(**fields: Any) -> Change:
    return lambda record: record["rounds"][0]["mechanism"].update(fields)


def coordinates(count: int) -> Change:
    return lambda record: record["rounds"][0]["mechanism"]["ball"].update(coordinates=count)


NORMAL = {"type": "gaussian-vectors", "ball": {"norm": "max", "bound": 1.0, "coordinates": 4}}
ROWS: list[tuple[str, Change, str]] = [
    ("local", mechanism(epsilon=8.0), "rounds.1.mechanism"),
    ("local", mechanism(epsilon=None), "rounds.1.mechanism"),
    ("local", mechanism(epsilon=0.0), "rounds.1.mechanism.epsilon"),
    ("local", mechanism(epsilon=10**400), "rounds.1.mechanism"),
    ("local", mechanism(buckets=0), "rounds.1.mechanism.symbols"),
    ("local", mechanism(buckets=True), "rounds.1.mechanism"),
    ("local", mechanism(type="central-sums"), "rounds.1.mechanism.type"),
    ("local", mechanism(type="laplace-cells"), "rounds.1.mechanism.type"),
    ("local", mechanism(type=["signed-symbol"]), "rounds.1.mechanism.type"),
    ("local", mechanism(standard_deviation=3.0), "rounds.1.mechanism.standard_deviation"),
    ("local", mechanism(layout={}), "rounds.1.mechanism.layout"),
    ("local", row(mechanism={}), "rounds.1.mechanism.type"),
    ("local", row(mechanism="signed-symbol"), "record"),
    ("local", row(honest=1), "rounds.1.honest"),
    ("local", row(received=2000), "rounds.1.received"),
    ("local", row(received=-1), "rounds.1.received"),
    ("local", row(version=7), "rounds.version"),
    ("local", row(version=0), "record"),
    ("local", row(version=True), "record"),
    ("local", row(surprise=1), "record"),
    ("published", mechanism(type="signed-symbol"), "rounds.1.mechanism.type"),
    ("shuffle", mechanism(epsilon=3.999), "rounds.1.mechanism"),
    ("shuffle", mechanism(epsilon=4.001), "rounds.1.mechanism"),
    ("shuffle", mechanism(buckets=512), "rounds.1.mechanism"),
    ("shuffle", mechanism(elsewhere=True), "rounds.1.mechanism"),
    ("shuffle", row(honest=1000), "rounds.1.honest"),
    ("shuffle", row(batch_size=2000), "rounds.1.honest"),
    ("shuffle", row(batch_size=999), "rounds.1.batch_size"),
    ("shuffle", row(batch_size=10**400), "rounds.1.batch_size"),
    ("shuffle", row(batch_size=2000, honest=1800, received=1900), "rounds.1.mechanism"),
    ("shuffle", lambda r: r["rounds"][1].update(released=True, received=899), "rounds.2.released"),
    ("central", mechanism(scale=1.0), "rounds.1.mechanism"),
    ("central", mechanism(scale=0), "rounds.1.mechanism"),
    ("central", mechanism(scale=-1.0), "rounds.1.mechanism.scale"),
    ("central", mechanism(epsilon=1.0), "rounds.1.mechanism.epsilon"),
    ("central-pure", mechanism(scale=1.0), "rounds.1.mechanism"),
    ("returning-central", mechanism(standard_deviation=4.0), "rounds.1.mechanism"),
    ("returning-central", mechanism(standard_deviation=0), "rounds.1.mechanism"),
    ("returning-central", mechanism(standard_deviation=0, scale=4.0), "rounds.1.mechanism"),
    ("returning-central", mechanism(standard_deviation=-1.0), "rounds.1.mechanism.standard_deviation"),
    ("none", mechanism(standard_deviation=9.0), "rounds.1.mechanism"),
    ("phased-local", row(mechanism=NORMAL | {"standard_deviation": 9e4}), "rounds.1.mechanism"),
    ("phased-local", mechanism(chosen=1025), "rounds.1.mechanism.chosen"),
    ("phased-local", mechanism(seed=5), "rounds.1.mechanism.seed"),
    ("phased-normal", mechanism(standard_deviation=2e5), "rounds.1.mechanism"),
    ("phased-normal", coordinates(6), "rounds.1.mechanism"),
    ("phased-normal", coordinates(0), "rounds.1.mechanism.coordinates"),
    ("phased-shuffle", mechanism(bits=4), "rounds.1.mechanism"),
    ("phased-shuffle", mechanism(probability=0.01), "rounds.1.mechanism"),
    ("phased-shuffle", mechanism(levels=6), "rounds.1.mechanism"),
    ("phased-shuffle", mechanism(least=5), "rounds.1.mechanism.least"),
    ("phased-shuffle", coordinates(6), "rounds.1.mechanism"),
    ("phased-shuffle", row(honest=23), "rounds.1.honest"),
    ("phased-shuffle", row(batch_size=46), "rounds.1.honest"),
    ("phased-shuffle", mechanism(type="central-vectors"), "rounds.1.mechanism.type"),
    ("phased-reduced", lambda r: r.update(least_share=1.0), "rounds.1.honest"),
    ("phased-central", mechanism(standard_deviation=1.0), "rounds.1.mechanism"),
    ("phased-none", row(mechanism=NORMAL | {"standard_deviation": 1e5}), "rounds.1.mechanism.type"),
    ("phased-none", mechanism(standard_deviation=1e5), "rounds.1.mechanism"),
    ("phased-none", lambda r: r.update(sources=record_of("sources")["sources"]), "sources"),
    ("local", lambda r: r.update(algorithm="magic"), "algorithm"),
    ("local", lambda r: r.update(model="magic"), "privacy.model"),
    ("local", lambda r: r.update(delta=1e-6), "privacy.delta"),
    ("local", lambda r: r["privacy"].update(epsilon=9.0), "privacy"),
]


@pytest.mark.parametrize(("name", "change", "field"), ROWS)
def test_a_row_that_its_certificate_does_not_cover_is_refused(capsys, tmp_path, name, change, field):
    record = record_of(name, 1 if name.startswith("phased") else 2)
    change(record)
    code, err = verify(capsys, tmp_path, json.dumps(record))
    assert code == 2
    assert f" {field}: " in err


def test_a_row_without_noise_among_valid_rows_is_refused(capsys, tmp_path):
    """Refuses a round without noise in an experiment whose further rounds keep the promise."""
    record = record_of("central", 3)
    record["rounds"][1]["mechanism"]["scale"] = 0.0
    assert " rounds.2.mechanism: " in verify(capsys, tmp_path, json.dumps(record))[1]


def test_a_row_of_a_source_is_named_with_it(capsys, tmp_path):
    record = record_of("sources")
    record["sources"][0]["rounds"][0]["mechanism"]["epsilon"] = 3.9
    assert " sources.clinic.rounds.1.mechanism: " in verify(capsys, tmp_path, json.dumps(record))[1]


def test_terms_of_a_pending_cohort_are_checked(capsys, tmp_path):
    record = record_of("sources")
    record["planned"]["mechanism"]["buckets"] = 512
    assert " planned.mechanism: " in verify(capsys, tmp_path, json.dumps(record))[1]
    record["planned"] = None
    assert " planned: " in verify(capsys, tmp_path, json.dumps(record))[1]


def test_a_missing_round_is_detected(capsys, tmp_path):
    """The worst round of an experiment could be dropped from rows and certificate alike."""
    record = record_of("local", 3)
    del record["rounds"][1]
    assert " rounds.version: " in verify(capsys, tmp_path, json.dumps(record))[1]


def test_versions_skipped_by_a_restored_backup_may_be_missing(capsys, tmp_path):
    record = record_of("local", 3)
    for row, version in zip(record["rounds"], (1, 1_000_001, 1_000_002), strict=True):
        row["version"] = version
    assert verify(capsys, tmp_path, json.dumps(record)) == (0, "")
    record["rounds"][2]["version"] = 2_000_000
    assert " rounds.version: " in verify(capsys, tmp_path, json.dumps(record))[1]


def test_versions_without_questions_may_be_missing(capsys, tmp_path):
    record = record_of("local", 3)
    record["rounds"][1]["version"], record["rounds"][2]["version"] = 3, 4
    code, stderr = verify(capsys, tmp_path, json.dumps(record))
    assert (code, "there is no round of version 2" in stderr) == (2, True)
    record["silent"] = [2, 5]
    assert verify(capsys, tmp_path, json.dumps(record)) == (0, "")
    del record["silent"]
    record["rounds"][1]["version"], record["rounds"][2]["version"] = 2, 3
    assert verify(capsys, tmp_path, json.dumps(record)) == (0, "")


@pytest.mark.parametrize("silent", [[3], [5, 4], [4, 4], [5], [0], [-1, 4], ["4"]])
def test_versions_without_questions_are_listed_once_and_in_order(capsys, tmp_path, silent):
    record = record_of("local", 3)
    record["silent"] = silent
    assert verify(capsys, tmp_path, json.dumps(record))[0] == 2


def test_more_honest_people_than_the_batch_are_refused(capsys, tmp_path):
    """Row and certificate agree on twice the people that there are: a smaller delta than is true."""
    text = json.dumps(record_of("shuffle")).replace('"honest": 900', '"honest": 1800')
    code, err = verify(capsys, tmp_path, text)
    assert code == 2
    assert " rounds.1.honest: " in err


CLAIMS: list[tuple[str, Change, str]] = [
    ("shuffle", lambda c: c["claims"].pop(), "certificate.claims"),
    ("shuffle", lambda c: c["claims"].append(c["claims"][0] | {"adversary": "nobody"}), "certificate.claims"),
    ("shuffle", lambda c: c["claims"][0].update(epsilon=1.5), "certificate.claims.0.epsilon"),
    ("shuffle", lambda c: c["claims"][0].update(delta=1e-5), "certificate.claims.0.delta"),
    ("shuffle", lambda c: c["claims"][0].update(adversary="everybody together"), "certificate.claims.0.adversary"),
    ("shuffle", lambda c: c["claims"][0]["event"].update(honest=450), "rounds.1.mechanism"),
    ("shuffle", lambda c: c["claims"][1].update(epsilon=6.0), "certificate.claims.1.epsilon"),
    ("shuffle", lambda c: c.update(assumes=["nothing"]), "certificate.assumes"),
    ("shuffle", lambda c: c.update(assumes=c["assumes"][:1]), "certificate.assumes"),
    ("phased-central", lambda c: c["claims"][0].update(sampling=0.0), "certificate.claims.0.sampling"),
    ("central", lambda c: c["claims"].pop(), "certificate.claims"),
    ("hidden", lambda c: c.update(assumes=c["assumes"][:-1]), "certificate.assumes"),
    ("local", lambda c: c["claims"][1].update(protects="the whole record"), "certificate.claims.1.protects"),
    ("central", lambda c: c["claims"][0].update(event=None, epsilon=None), "certificate.claims.0.epsilon"),
    ("phased-shuffle", lambda c: c["claims"].pop(), "certificate.claims"),
    ("phased-shuffle", lambda c: c["claims"][0].update(epsilon=5.0), "certificate.claims.0.epsilon"),
    ("phased-shuffle", lambda c: c.update(assumes=[]), "certificate.assumes"),
    ("phased-central", lambda c: c["claims"][0].update(delta=1e-3), "certificate.claims.0.delta"),
]


@pytest.mark.parametrize(("name", "change", "field"), CLAIMS)
def test_a_claim_that_the_rounds_do_not_make_is_refused(capsys, tmp_path, name, change, field):
    record = record_of(name)
    change(record["certificate"])
    code, err = verify(capsys, tmp_path, json.dumps(record))
    assert code == 2
    assert f" {field}: " in err


@pytest.mark.parametrize("promise", [{"epsilon": 0.5}, {"delta": 1e-9}, {"model": "local", "delta": 0.0}])
@pytest.mark.parametrize("name", ["shuffle", "phased-shuffle"])
def test_a_promise_at_the_top_that_the_rounds_do_not_keep_is_refused(capsys, tmp_path, name, promise):
    code, err = verify(capsys, tmp_path, json.dumps(record_of(name) | promise))
    assert code == 2
    assert err


def test_a_record_whose_rounds_do_not_keep_the_promise_does_not_hold(capsys, tmp_path):
    """Rows and certificate agree, and what they agree on is false: that is exit code 1, as ever."""
    record = record_of("local")
    record["rounds"][0]["mechanism"]["epsilon"] = 2.0
    for claim in record["certificate"]["claims"]:
        claim["event"]["epsilon"] = 2.0
    assert verify(capsys, tmp_path, json.dumps(record)) == (1, "")
