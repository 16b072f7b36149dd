"""Review packs: figures are the certificate's under every trust model, and claims are those of audits that were run."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
import yaml

from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record import make_record
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.risk import assess_risks
from privateer_core.privacy.trust import TRUST, Curator, Recipient
from privateer_lab.pages.review.document import Review, make_review, render_html, write_pack
from privateer_lab.pages.review.evidence import list_audit_targets, read_audit, run_audit
from privateer_lab.pages.review.subject import MISSING, ExperimentStanding, Facts, Subject, read_facts, to_builtins
from privateer_lab.render.words import percent
from tests.documents import schemas
from tests.support.answers import PEOPLE
from tests.support.pages import check
from tests.support.records import SPECS, rounds_of
from tests.unit.lab.cli.test_command_line import call

ROOT = Path(__file__).parents[4]
SCHEMA = jsonschema_rs.validator_for(schemas.review())
STANDING = ExperimentStanding("open", 3, 2500, PEOPLE, {"round-closed": 2})
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e{{ 7*7 }}'


def subject_of(name: str, rounds: int = 0) -> Subject:
    spec = SPECS[name]
    record = make_record(spec, rounds_of(spec, rounds) if rounds else {})
    standing = STANDING if rounds else None
    return Subject(spec, record, read_certificates(to_builtins(record)), "somewhere", standing)


def review_of(name: str, rounds: int = 0, facts: Facts | None = None) -> Review:
    return make_review(subject_of(name, rounds), None, facts or Facts())


EVERY = pytest.mark.parametrize(("name", "rounds"), [(name, rounds) for name in SPECS for rounds in (0, 2)])


@pytest.mark.parametrize("name", list(SPECS))
def test_the_review_says_who_sees_upload_tokens(name: str) -> None:
    review = make_review(msgspec.structs.replace(subject_of(name), with_tokens=True), None, Facts())
    without = review_of(name)
    text, before = check(render_html(review)).text, check(render_html(without)).text
    SCHEMA.validate(to_builtins(review))
    for words in ("the issuer of upload tokens", "the times of tokens", "spent tokens", "hashes of who has had tokens"):
        assert words in text
        assert words not in before
    assert "Devices are not authenticated" not in text
    taker = "shuffler" if SPECS[name].privacy.trust.endpoint is Recipient.SHUFFLER else "server"
    assert f"{taker}: spent tokens" in text


def test_every_trust_model_that_services_run_is_reviewed() -> None:
    assert {spec.privacy.model for spec in SPECS.values()} == {
        row.name for row in TRUST.values() if not row.is_simulated
    }


@EVERY
def test_figures_of_the_page_are_the_certificates(name: str, rounds: int) -> None:
    review, subject = review_of(name, rounds), subject_of(name, rounds)
    page = check(render_html(review))
    claims = [claim for certificate in subject.certificates.values() for claim in certificate.claims]
    part = page.text.partition("The promise, and the risk that is left")[2].rpartition("Claims as recomputed")[0]
    promises = re.findall(r"Promise (nothing is claimed|epsilon (\S+), delta (\S+)) Protects", part)
    assert len(promises) == len(claims) > 0
    for (words, epsilon, delta), claim in zip(promises, claims, strict=True):
        if claim.epsilon is None:
            assert words == "nothing is claimed"
        else:
            assert (float(epsilon), float(delta)) == pytest.approx((claim.epsilon, claim.delta), rel=1e-11)
        assert f"Against {claim.adversary}" in part
        assert claim.protects in part
    assert all(text in page.text for certificate in subject.certificates.values() for text in certificate.assumes)
    verdicts = [verdict for certificate in subject.certificates.values() for verdict in recompute(certificate)]
    assert [claim.holds for claim in review.claims] == [verdict.holds for verdict in verdicts]
    assert all(verdict.proof in page.text for verdict in verdicts)


@EVERY
def test_risks_are_those_of_the_certified_curve(name: str, rounds: int) -> None:
    review, subject = review_of(name, rounds), subject_of(name, rounds)
    certified_risks = [
        risk for certificate in subject.certificates.values() for risk in assess_risks(certificate).risks
    ]
    text = check(render_html(review)).text
    for claim, risk in zip(review.claims, certified_risks, strict=True):
        assert claim.advantage == risk.advantage
        assert claim.guesses[0].at_most == pytest.approx(risk.guesses, rel=1e-9)
        shares = [guess.at_most for guess in claim.guesses]
        assert shares == sorted(shares, reverse=True)
        assert all(guess.blind <= guess.at_most <= 1 for guess in claim.guesses)
        if claim.epsilon is not None:
            assert f"Membership advantage at most {percent(risk.advantage)}" in text


@EVERY
def test_the_json_follows_the_schema(name: str, rounds: int) -> None:
    document = json.loads(msgspec.json.encode(review_of(name, rounds)))
    SCHEMA.validate(document)
    assert not SCHEMA.is_valid(document | {"claims": [{}]})
    assert read_certificates(document["record"])[""].claims


@EVERY
def test_the_registry_has_its_fields_and_only_known_ones(name: str, rounds: int) -> None:
    review = review_of(name, rounds)
    assert (review.registry is None) == (not SPECS[name].privacy.trust.promises)
    if review.registry is None:
        assert "no differential privacy to register" in render_html(review)
        return
    entry = yaml.safe_load(review.registry_yaml)
    assert entry == review.registry
    deployment, privacy = entry["deployment"], SPECS[name].privacy
    assert set(entry) == {"url_slug", "status", "tier", "deployment"}
    assert set(deployment) == {
        "basic", "dp_variant", "privacy_loss", "deployment_model", "accounting", "implementation", "administrative",
    }  # fmt: skip
    assert deployment["deployment_model"]["model_name"] in ("Local", "Central", "Shuffle")
    assert deployment["dp_variant"]["variant_name"] == ("Approximate DP" if privacy.delta else "Pure DP")
    parameters = deployment["privacy_loss"]["privacy_parameters"]
    weakest = max([privacy.epsilon or 0.0, *(source.epsilon or 0.0 for source in SPECS[name].sources)])
    assert (parameters["epsilon"], parameters.get("delta", 0.0)) == (weakest, privacy.delta)
    assert deployment["basic"]["data_curators"] == [MISSING]
    actors = deployment["deployment_model"]["actors"]
    has_curator = privacy.trust.curator is not Curator.NOBODY
    assert ("But nothing keeps it from reading records" in actors) == has_curator
    assert "cannot nothing" not in actors


def test_parties_see_what_the_threat_model_says() -> None:
    page = (ROOT / "docs/threat-model.md").read_text().partition("\n## ")[0]
    table = page.replace("`", "")
    for name, spec in SPECS.items():
        row, review = spec.privacy.trust, review_of(name)
        by_name = {party.name: party for party in review.parties}
        assert ("the shuffler" in by_name) == (row.endpoint is Recipient.SHUFFLER)
        assert by_name["the server"].sees == row.sees
        for party_name in ("the device", "the shuffler", "a reader of the network"):
            if party_name in by_name:
                party = by_name[party_name]
                assert all(text in table for text in (party.sees, party.cannot)), party_name


def test_stored_things_follow_the_trust_model() -> None:
    for name, spec in SPECS.items():
        places = {place.where: place for place in review_of(name).kept}
        assert ("shuffler: reports" in places) == (spec.privacy.trust.endpoint is Recipient.SHUFFLER)
        assert ("records" in places["server: open round"].what) == (spec.privacy.trust.curator is Curator.SERVER)
        assert places["server: keys"].until == "the round closes"


def test_a_missing_fact_is_unknown_and_names_who_has_to_state_it(tmp_path: Path) -> None:
    review = review_of("local")
    assert {fact.key for fact in review.unknown} >= {"curators", "legal_basis", "deletion", "bias"}
    text = check(render_html(review)).text
    assert all(f"{fact.what} {fact.who} {fact.key}" in text for fact in review.unknown)
    unanswered = [(point.answer, point.source) for point in review.points if not point.answered]
    assert ("Unknown.", "The operator has to say it; the table above has what is stored") in unanswered
    assert all(source[0].isupper() for _, source in unanswered), unanswered
    assert [point.topic for point in review.points if not point.answered].count("bias") == 1
    file = tmp_path / "facts.toml"
    file.write_text(
        'curators = ["Example GmbH"]\ncontact = "dpo@example.org"\nintended_use = "Banners"\nregion = "EU"\n'
        'sector = "Technology"\npublication_date = 2026-11-01\nauthors = ["A. Reviewer"]\nlegal_basis = "Art. 6(1)a"\n'
        'information = "Notice"\ndeletion = "2027-01-01"\nchoices = "docs"\nbias = "None known"\n'
    )
    full = review_of("local", facts=read_facts(file))
    assert full.unknown == ()
    basic = full.registry["deployment"]["basic"]
    assert (basic["publication_date"], basic["data_curators"]) == ("2026-11-01", ["Example GmbH"])
    assert "Art. 6(1)a" in check(render_html(full)).text
    gaps = [line for line in full.registry_yaml.splitlines() if MISSING in line and not line.startswith("#")]
    assert len(gaps) == 2  # sources, and how settings were tuned


def test_text_of_strangers_stays_text() -> None:
    facts = Facts(curators=(HOSTILE,), bias=HOSTILE, contact=HOSTILE, notes=f"{HOSTILE}\n{HOSTILE}")
    review = review_of("local", 2, facts)
    standing = ExperimentStanding("open", 1, 0, PEOPLE, {HOSTILE: 3})
    page = check(render_html(msgspec.structs.replace(review, origin=HOSTILE, standing=standing)))
    assert page.text.count("<script>alert(1)</script>") >= 4
    assert "{{ 7*7 }}" in page.text
    assert "\u202e" not in page.text


@pytest.mark.nightly
def test_the_review_runs_the_attacks_that_are_about_it() -> None:
    subject = subject_of("local", 1)
    audit_evidence = run_audit(subject.spec, subject.record, 1000)
    assert list_audit_targets(subject.spec, subject.record) == ("SignedSymbol", "partition") == audit_evidence.wanted
    assert {attack.mechanism for attack in audit_evidence.attacks} == {"SignedSymbol", "partition", "channels"}
    assert {attack.model for attack in audit_evidence.attacks} == {"local", "any"}
    assert not any("shuffle" in attack.attack or "central" in attack.attack for attack in audit_evidence.attacks)
    assert (audit_evidence.broken, audit_evidence.unattacked, audit_evidence.origin) == (0, (), "run for this document")
    review = make_review(subject, audit_evidence, Facts())
    assert review.holds
    text = check(render_html(review)).text
    assert f"None of {len(audit_evidence.attacks)} attacks and checks broke a claim." in text
    broken = msgspec.structs.replace(audit_evidence, broken=2)
    failed = make_review(subject, broken, Facts())
    assert not failed.holds
    assert "2 of" in check(render_html(failed)).text


def test_no_audit_is_claimed_that_was_not_run() -> None:
    text = check(render_html(review_of("shuffle"))).text
    assert "No audit was run for this document, and none was given." in text
    assert "broke a claim" not in text
    point = next(point for point in review_of("shuffle").points if point.topic == "testing")
    assert (point.answer, point.answered) == ("No audit was run for this document.", False)


AUDIT: dict[str, Any] = {
    "format": "privateer/audit/1",
    "privateer": "0.1.0",
    "at": "2026-11-20T10:00:00+00:00",
    "holds": True,
    "broken": [],
    "unsafe": [],
    "attacks": 2,
    "false_alarm": 1e-4,
    "findings": [
        {"attack": f"{model} bits", "mechanism": "SignedSymbol", "model": model, "calibration": "tight", "epsilon": 1.0,
         "delta": 0.0, "lower_bound": 0.9, "confidence": 0.9999, "samples": 100, "verdict": "holds", "unsafe": False}
        for model in ("local", "shuffle")
    ],
}  # fmt: skip


def test_a_stored_audit_counts_for_the_parts_it_attacked_alone(tmp_path: Path) -> None:
    file, subject = tmp_path / "audit.json", subject_of("local", 1)
    file.write_text(json.dumps(AUDIT))
    audit_evidence = read_audit(file, subject.spec, subject.record)
    assert [attack.attack for attack in audit_evidence.attacks] == ["local bits"]
    assert audit_evidence.unattacked == ("partition",)
    text = check(render_html(make_review(subject, audit_evidence, Facts()))).text
    assert "partition: the audit has no attack on it" in text
    assert "2026-11-20 10:00 UTC" in text
    assert (
        "0 of 1 attacks and checks broke a claim, on 2026-11-20 10:00 UTC, Privateer 0.1.0. Not attacked: partition."
        in text
    )
    central = subject_of("central")
    unattacked = read_audit(file, central.spec, central.record)
    assert unattacked.attacks == ()
    assert (
        "has no attack on what this experiment is made of"
        in check(render_html(make_review(central, unattacked, Facts()))).text
    )


def test_a_spec_is_reviewed_before_it_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = str(ROOT / "examples" / "peaks-shuffle.toml")
    code, out = call(capsys, "review", spec, "--out", str(tmp_path / "pack"), "--no-audit")
    assert (code, out.count("\n")) == (0, 4)
    names = {"review.html", "review.json", "record.json", "registry.yaml"}
    assert {path.name for path in (tmp_path / "pack").iterdir()} == names
    assert "not started" in check((tmp_path / "pack" / "review.html").read_text()).text
    assert call(capsys, "account", "verify", str(tmp_path / "pack" / "record.json"))[0] == 0


def test_a_claim_that_does_not_hold_ends_with_1(tmp_path: Path) -> None:
    review = review_of("local", 1)
    lie = msgspec.structs.replace(review.claims[0], holds=False)
    failed = msgspec.structs.replace(review, claims=(lie, *review.claims[1:]))
    assert not failed.holds
    write_pack(failed, tmp_path)
    text = check((tmp_path / "review.html").read_text()).text
    assert "NOT EVERYTHING HOLDS" in text


SPEC = str(ROOT / "examples" / "peaks-local.toml")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nobody",), "--url: no answer from the service at http://127.0.0.1:9 (is it running? privateer up)"),
        (("missing.toml", "--no-audit"), "SPEC: cannot read"),
        ((SPEC, "--audit", "audit.json", "--no-audit"), "--no-audit: cannot be given with --audit"),
        ((SPEC, "--audit", "missing.json"), "--audit: cannot read"),
        ((SPEC, "--audit", "old.json"), "has an audit of Privateer 0.0.9, and this is 0.1.0"),
        ((SPEC, "--audit", "newer.json"), "is no audit of the format privateer/audit/1"),
        ((SPEC, "--audit", "broken.json"), "--audit: is not an audit"),
        ((SPEC, "--no-audit", "--facts", "facts.toml"), "--facts: colour: there is no such key"),
        ((SPEC, "--no-audit", "--facts", "sector.toml"), "--facts: sector: is no sector of the registry"),
        ((SPEC, "--no-audit", "--facts", "date.toml"), "--facts: publication_date: is no date"),
        ((SPEC, "--no-audit", "--facts", "kind.toml"), "--facts: Expected"),
        ((SPEC, "--no-audit", "--out", "audit.json"), "--out: audit.json is a file, not a folder (name a folder,"),
        ((SPEC, "--no-audit", "--out", "audit.json/in/it"), "--out: audit.json is a file, not a folder"),
    ],
)
def test_bad_input_is_one_sentence(arguments, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIVATEER_URL", "http://127.0.0.1:9")
    files = {
        "audit.json": AUDIT,
        "old.json": AUDIT | {"privateer": "0.0.9"},
        "newer.json": AUDIT | {"format": "privateer/audit/2"},
        "broken.json": AUDIT | {"findings": [{}]},
    }
    for name, document in files.items():
        (tmp_path / name).write_text(json.dumps(document))
    (tmp_path / "facts.toml").write_text('colour = "red"\n')
    (tmp_path / "sector.toml").write_text('sector = "Gambling"\n')
    (tmp_path / "date.toml").write_text('publication_date = "soon"\n')
    (tmp_path / "kind.toml").write_text("region = 7\n")
    code, out = call(capsys, "review", *arguments)
    expected = 3 if "no answer" in says else 2
    assert (code, out.startswith("privateer: "), out.count("\n")) == (expected, True, 1), out
    assert says in out
    assert not any(path.is_dir() for path in tmp_path.iterdir())
