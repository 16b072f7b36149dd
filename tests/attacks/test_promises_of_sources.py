"""Where people of a source are promised less, no page, picture or entry tells them the promise of others."""

import json

import msgspec
import pytest

import privateer_lab as lab
from privateer_core.privacy.record import make_record
from privateer_lab.pages.report_findings import promise_of
from privateer_lab.pages.review.document import make_review
from privateer_lab.pages.review.page import html
from privateer_lab.pages.review.subject import Facts, Subject
from tests.support.records import SPECS

SPEC = SPECS["sources"]
RECORD = make_record(SPEC, {})
CERTIFICATES = {"": RECORD.certificate, **{one.name: one.certificate for one in RECORD.sources}}


@pytest.fixture
def weakest() -> float:
    """The largest epsilon that is promised to somebody."""
    found = max(SPEC.privacy_of(cohort).epsilon or 0.0 for cohort in SPEC.cohorts)
    assert found > (SPEC.privacy.epsilon or 0.0)
    return found


@pytest.mark.parametrize("what", [SPEC, json.loads(msgspec.json.encode(RECORD))], ids=["spec", "record"])
def test_the_picture_has_the_curves_of_all_people(what: object, weakest: float) -> None:
    legend = lab.plot.privacy(what).figure.axes[0].get_legend()  # type: ignore[arg-type]
    assert any(f"epsilon {weakest:.3g}," in text.get_text() for text in legend.get_texts())


def test_a_report_says_what_people_of_sources_are_promised(weakest: float) -> None:
    assert f"epsilon {weakest:g}" in promise_of(CERTIFICATES)


def test_a_review_says_what_people_of_sources_are_promised_and_registers_the_worst(weakest: float) -> None:
    made = make_review(Subject(SPEC, RECORD, CERTIFICATES, "spec.toml", None), None, Facts())
    lead = html(made).partition('<p class="lead">')[2].partition("</p>")[0]
    assert f"epsilon {weakest:g}" in lead
    assert made.registry is not None
    assert made.registry["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] == weakest
