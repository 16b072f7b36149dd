"""Records, pictures, pages and papers that claim more privacy than their events give."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from msgspec.structs import replace as with_parameters

import privateer_lab as lab
from privateer_client import Client
from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.errors import SpecError, TermsRefused
from privateer_core.mechanisms import CentralVectors, GaussianVectors, Mechanism
from privateer_core.primitives.clipping import Ball
from privateer_core.privacy.certificate import certify, recompute
from privateer_core.privacy.order import is_capped
from privateer_core.privacy.record import Row, describe_terms, make_record
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.terms_verification import verify
from privateer_core.privacy.trust import CALIBRATIONS, TIGHT, TRUST, Crowd
from privateer_core.spec.spec import Spec
from privateer_lab.audit import whole_experiments as experiments
from privateer_lab.audit.attacks.releases import segment_cases
from privateer_lab.audit.suite import ATTACKS, FALSE_ALARM, _run_attack, summarize_findings
from privateer_lab.cli.command_line import main
from privateer_lab.pages.report import promise_sentence
from privateer_lab.pages.review.document import make_review, render_html
from privateer_lab.pages.review.subject import Facts, Subject
from privateer_papers.paper_3.privatelasso import cases
from tests.support.devices import EVERYTHING
from tests.support.memory_ledgers import MemoryLedger
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.records import SPECS, record_of, rounds_of
from tests.support.specs import SHUFFLE, tables
from tests.unit.lab.cli.test_command_line import run
from tests.unit.privacy.test_calibration_names import EARLIER, PRESENT, record_with
from tests.unit.privacy.test_terms_verification import WIDE, facts_of, terms_of

# A privacy record says more than its rounds bear out, or what a terminal obeys: `account verify` refuses it.


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
    with pytest.raises(SystemExit) as exit_info:
        main(["account", "verify", str(path)])
    output = capsys.readouterr()
    assert exit_info.value.code == 2
    assert len(output.out + output.err) < 500
    assert not set("\x1b\x07\u202e") & set(output.err)


@pytest.mark.parametrize("key", ["a\x1b[2J", "0" * 17, "g" * 16, "0" * 3_000_000])
def test_a_shuffler_is_the_id_of_a_key(key: str) -> None:
    record = record_of("shuffle", 3)
    of_rounds("shuffler", key)(record)
    refused(record, "record")


def test_organisations_as_servers_write_them_are_accepted() -> None:
    record = record_of("shuffle", 3)
    of_rounds("organisation", "Clinique de l'Étoile & Söhne")(record)
    of_rounds("shuffler", "0123456789abcdef")(record)
    assert read_certificates(record)


def test_a_limit_is_not_above_the_epsilon_of_reports() -> None:
    record = large()
    assert read_certificates(record)
    assert record["privacy"]["local_epsilon_max"] == 4.0
    for raised in (16.0, 8.0, 4.5):
        record["privacy"]["local_epsilon_max"] = raised
        refused(record, ".mechanism")


BY_MODEL = [name for name, spec in SPECS.items() if spec.privacy.trust.crowd is not Crowd.BATCH]


@pytest.mark.parametrize("name", [*BY_MODEL, "phased-shuffle", "phased-reduced"])
@pytest.mark.parametrize("count", [0, 3])
def test_a_raised_limit_without_effect_is_refused(name: str, count: int) -> None:
    record = record_of(name, count)
    record["privacy"]["local_epsilon_max"] = 16.0
    refused(record, "privacy.local_epsilon_max")


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if not spec.capabilities.closes_early])
def test_rounds_of_full_batches_have_no_minimum_share(name: str) -> None:
    record = record_of(name, 3)
    record["least_share"] = 0.9
    refused(record, "least_share")


@pytest.mark.parametrize("share", [1.0, 0.8])
def test_a_minimum_share_above_the_certified_one_is_refused(share: float) -> None:
    record = record_of("phased-reduced", 3)
    assert record["least_share"] == 0.6
    record["least_share"] = share
    refused(record, ".honest")


def test_rounds_that_no_service_runs_are_refused() -> None:
    """A curator that sees records claimed rounds of two servers, each of which sees nothing."""
    spec = algorithm("bandit").spec.instances()["split"]
    assert read_certificates(json.loads(msgspec.json.encode(make_record(spec, {}))))
    refused(json.loads(msgspec.json.encode(make_record(spec, rounds_of(spec, 2)))), "rounds")


def test_limits_without_effect_are_not_in_the_record() -> None:
    spec = parse_spec(tables({"privacy.local_epsilon_max": 9.0, "privacy.min_batch": 7}))
    record = make_record(spec, rounds_of(spec, 2))
    assert (record.privacy["local_epsilon_max"], record.privacy["min_batch"]) == (4.0, 7)


def test_the_text_of_a_certificate_is_limited(tmp_path: Path) -> None:
    certificate = record_of("shuffle", 3)["certificate"]
    certificate["assumes"] = 5000 * ["x" * 1000]
    refused(certificate, "certificate")
    claim = certificate["claims"][0]
    certificate["assumes"], certificate["claims"] = (
        [],
        [claim | {"adversary": f"number {indice}"} for indice in range(65)],
    )
    refused(certificate, "certificate")


# A record says that vectors are in a norm in which people are nearer than in that of their question.


LINEAR = algorithm("linear").spec.instances()
NORMS = [
    *(("phased-normal", SPECS["phased-normal"], GaussianVectors, norm) for norm in ("l2", "joint")),
    *(("phased-central", SPECS["phased-central"], CentralVectors, norm) for norm in ("l2", "joint")),
]


def record_in_norm(spec: Spec, terms: Terms) -> dict[str, Any]:
    row = Row(version=1, received=terms.batch_size, released=True, **msgspec.structs.asdict(describe_terms(terms)))
    return dict(json.loads(msgspec.json.encode(make_record(spec, {"": [row]}))))


@pytest.mark.parametrize(("name", "spec", "kind", "norm"), NORMS, ids=[f"{row[0]} {row[3]}" for row in NORMS])
def test_a_norm_that_the_question_lacks_is_refused(
    name: str, spec: Spec, kind: type[Any], norm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: without the check the record holds at its epsilon, and the noise is too small for it."""
    honest = terms_of(spec)
    honest_norm = honest.mechanism.norm
    assert honest_norm is not None, name
    ball = with_parameters(honest.mechanism.ball, norm=norm)  # type: ignore[union-attr]
    mechanism = kind.calibrated(ball, spec.privacy.bound, spec.privacy.delta)
    terms = replace(honest, mechanism=mechanism)
    true_terms = replace(terms, mechanism=with_parameters(mechanism, ball=honest.mechanism.ball))  # type: ignore[union-attr]
    assert terms.keeps_promise
    assert not true_terms.keeps_promise
    with pytest.raises(TermsRefused, match=r"mechanism\.ball\.norm"):
        verify(terms, spec, "", facts_of(spec, terms), WIDE)
    with monkeypatch.context() as planted:
        planted.setattr(Mechanism, "norm", property(lambda _: honest_norm))
        record = record_in_norm(spec, terms)
        (certificate,) = read_certificates(record).values()
        assert all(verdict.holds for verdict in recompute(certificate))
    refused(record, "mechanism.ball.norm")


def test_a_curator_of_rows_takes_no_vectors_from_devices() -> None:
    """A device could send a vector of another shape, and its noise would be too small for it."""
    spec = LINEAR["joint-central"]
    honest = terms_of(spec)
    ball = Ball("joint", 1.0, honest.mechanism.ball.coordinates)  # type: ignore[union-attr]
    vectors = CentralVectors.calibrated(ball, spec.privacy.bound, spec.privacy.delta)
    terms = replace(honest, mechanism=vectors)
    assert terms.keeps_promise
    with pytest.raises(TermsRefused, match="mechanism"):
        verify(terms, spec, "", facts_of(spec, terms), WIDE)
    with pytest.raises(SpecError, match=r"mechanism\.type"):
        record_in_norm(spec, terms)


def test_a_joint_norm_is_among_the_assumptions() -> None:
    """Residual reports have the same vectors to a record: which ones devices send, only their spec says."""
    spec = LINEAR["joint"]
    record = record_in_norm(spec, terms_of(spec))
    assert any("second moments" in text for text in record["certificate"]["assumes"])
    record["certificate"]["assumes"] = ["devices run the client library"]
    refused(record, "certificate.assumes")


# A record names an accountant that leaves more room, or none.


def rename(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Plant a version whose accountant has a new name, as docs/accounting.md says."""
    monkeypatch.setitem(CALIBRATIONS, "tighter", CALIBRATIONS[TIGHT])
    monkeypatch.setitem(CALIBRATIONS, TIGHT, factor)
    for name, row in TRUST.items():
        monkeypatch.setitem(TRUST, name, with_parameters(row, calibration="tighter"))


def test_a_record_without_a_name_is_by_the_first_accountant(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = record_with(EARLIER)
    assert "calibration" not in earlier["rounds"][0]
    rename(monkeypatch, factor=1.01 * PRESENT.mechanism.local_epsilon / EARLIER.mechanism.local_epsilon)
    assert read_certificates(earlier)
    earlier["rounds"][0]["calibration"] = "tighter"
    refused(earlier, "mechanism")


def test_a_renamed_accountant_names_itself_and_claims_its_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were its terms taken for a paper's, a record of too little noise would claim the true delta, and hold."""
    rename(monkeypatch, factor=2.0)
    spec = SPECS["shuffle"]
    assert is_capped(spec)
    record = record_with(replace(PRESENT, calibration="tighter"))
    assert record["rounds"][0]["calibration"] == "tighter"
    assert read_certificates(record)
    mechanism = with_parameters(PRESENT.mechanism, epsilon=1.01 * PRESENT.mechanism.local_epsilon)
    (certificate,) = read_certificates(record_with(replace(PRESENT, mechanism=mechanism))).values()
    assert certificate.claims[0].delta == spec.privacy.delta
    assert not recompute(certificate)[0].holds


@pytest.mark.parametrize("name", ["published", "tighter", ""])
def test_an_unknown_accountant_is_refused(name: str) -> None:
    record = record_with(PRESENT)
    record["rounds"][0]["calibration"] = name
    refused(record, ".calibration")


# Somebody hands on a certificate, or a record, that claims more privacy than its events give, to be drawn.


SPEC = "examples/peaks-shuffle.toml"


def documents() -> list[dict[str, Any]]:
    spec = lab.spec(SPEC)
    terms = spec.first_terms("")
    assert terms is not None
    records = certify(spec.name, spec.privacy, [terms], planned=True), make_record(spec, {})
    return [json.loads(msgspec.json.encode(record)) for record in records]


@pytest.mark.parametrize("place", [0, 1])
def test_a_claim_that_does_not_hold_is_not_drawn(place: int) -> None:
    document = documents()[place]
    assert lab.plot.privacy(document).title
    for claim in document.get("claims") or document["certificate"]["claims"]:
        claim["epsilon"] = 0.001
    with pytest.raises(SpecError):
        lab.plot.privacy(document)


# Where people of a source are promised less, no page, picture or entry tells them the promise of others.


SPEC_OF_SOURCES = SPECS["sources"]
RECORD = make_record(SPEC_OF_SOURCES, {})
CERTIFICATES = {"": RECORD.certificate, **{source.name: source.certificate for source in RECORD.sources}}


@pytest.fixture
def weakest() -> float:
    """The largest epsilon that a cohort is promised."""
    epsilon = max(SPEC_OF_SOURCES.cohort_privacy(cohort).epsilon or 0.0 for cohort in SPEC_OF_SOURCES.cohorts)
    assert epsilon > (SPEC_OF_SOURCES.privacy.epsilon or 0.0)
    return epsilon


@pytest.mark.parametrize("document", [SPEC_OF_SOURCES, json.loads(msgspec.json.encode(RECORD))], ids=["spec", "record"])
def test_the_privacy_plot_has_the_curve_of_the_weakest_source(document: object, weakest: float) -> None:
    legend = lab.plot.privacy(document).figure.axes[0].get_legend()  # type: ignore[arg-type]
    assert any(f"epsilon {weakest:.3g}," in text.get_text() for text in legend.get_texts())


def test_a_report_says_what_people_of_sources_are_promised(weakest: float) -> None:
    assert f"epsilon {weakest:g}" in promise_sentence(CERTIFICATES)


def test_a_review_says_what_people_of_sources_are_promised_and_registers_the_worst(weakest: float) -> None:
    review = make_review(Subject(SPEC_OF_SOURCES, RECORD, CERTIFICATES, "spec.toml", None), None, Facts())
    lead = render_html(review).partition('<p class="lead">')[2].partition("</p>")[0]
    assert f"epsilon {weakest:g}" in lead
    assert review.registry["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] == weakest


# Paper 4's DP-ConSE costs more than it states, and the audit says so; the product's releases do not.


ALARM = FALSE_ALARM / 60


def test_the_audit_breaks_dp_conse_at_its_nominal_epsilon(monkeypatch, capsys):
    """Two segments' effects alone prove it; lengths of epochs would add to it. No claim of the product breaks."""
    monkeypatch.setattr(experiments, "ALGORITHMS", ())
    code, out, _ = run(capsys, "audit", "--mechanism", "paper-4-dp-conse", "--samples", "4000", "--json")
    document = json.loads(out)
    assert (code, document["holds"], document["broken"], document["unsafe"]) == (0, True, [], ["paper-4-dp-conse"])
    (finding,) = (each for each in document["findings"] if each["calibration"] == "published")
    assert finding["unsafe"]
    assert finding["verdict"] == "broken"
    assert 1.2 < finding["lower_bound"] < 3


def test_a_claim_that_the_product_makes_is_not_excused(monkeypatch, capsys):
    """Were published terms to hold by the accountant, the same attack would fail the audit."""
    monkeypatch.setattr(experiments, "ALGORITHMS", ())
    monkeypatch.setattr("privateer_core.privacy.terms.Terms.keeps_promise", property(lambda _: True))
    code, out, _ = run(capsys, "audit", "--mechanism", "paper-4-dp-conse", "--samples", "4000", "--json")
    assert (code, json.loads(out)["broken"]) == (1, ["paper-4-dp-conse"])


def test_the_same_attack_does_not_break_the_curators_release() -> None:
    (case,) = segment_cases(80_000)
    finding = _run_attack(case, ALARM)
    assert finding.holds
    assert finding.lower_bound is not None
    assert finding.lower_bound > 0.5  # and it is not a weak one


# Paper 3's support step costs far more than it states: who is a candidate is told exactly.


def test_the_published_support_breaks_at_its_stated_promise() -> None:
    """A coordinate that is no candidate is never selected, and a candidate is every other time."""
    (case,) = cases(80_000)
    finding = _run_attack(case, ALARM)
    assert not finding.holds
    assert finding.lower_bound is not None
    assert finding.lower_bound > 3
    assert 0.4 < np.mean(case.sample(0, 2_000)) < 0.6
    assert not case.sample(1, 2_000).any()


def test_the_same_attack_proves_nothing_with_fixed_candidates() -> None:
    (case,) = cases(80_000, flips=False)
    finding = _run_attack(case, ALARM)
    assert finding.holds
    assert finding.lower_bound is not None
    assert finding.lower_bound < 0.5


def test_the_audit_lists_privatelasso_as_unsafe() -> None:
    (case,) = (
        plugin_case
        for attacks in ATTACKS.values()
        for plugin_case in attacks(4_000)
        if plugin_case.unsafe and plugin_case.mechanism == "paper-3-privatelasso"
    )
    totals = summarize_findings([_run_attack(case, ALARM)])
    assert (totals["holds"], totals["broken"], totals["unsafe"]) == (True, [], ["paper-3-privatelasso"])


# A server that calls a published calibration tight: no device takes part, also where the papers are installed.


SPECS_OF_TERMS: dict[str, Spec] = {
    f"{name}-{case}": spec
    for name in ALGORITHMS
    for case, spec in algorithm(name).spec.instances().items()
    if spec.privacy.trust.calibration != TIGHT
}


def test_papers_have_algorithms_with_published_calibrations() -> None:
    assert len(SPECS_OF_TERMS) >= 6


@pytest.mark.parametrize("name", SPECS_OF_TERMS)
def test_a_published_calibration_is_refused_under_any_name(name: str) -> None:
    body, ledger = published(SPECS_OF_TERMS[name], terms={"calibration": TIGHT}), MemoryLedger()
    way = Notary().transport(lambda _: httpx.Response(200, content=body))
    client = Client("http://server", shuffler="http://shuffler", limits=EVERYTHING, ledger=ledger, transport=way)
    with pytest.raises(TermsRefused, match=r"calibration: these terms are for simulation alone"):
        client.join(SPECS_OF_TERMS[name].name)
    assert ledger.payments == []
