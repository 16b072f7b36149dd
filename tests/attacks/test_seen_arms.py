"""Somebody who sees which arm a person got: in the batch, in a release, and over many choices of one session."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from privateer_client.client import Client
from privateer_client.ledger.ledger import Ledger
from privateer_client.participation import Participation
from privateer_core.errors import Malformed, TermsRefused
from privateer_core.privacy.terms_verification import Limits
from privateer_lab.audit.attacks.partition import as_local_cases, seen_cases
from privateer_lab.audit.case import Case
from privateer_lab.audit.suite import FALSE_ALARM, AuditFinding, _attacked
from tests.support.notary import notarized
from tests.support.publications import published, shuffle_spec
from tests.support.specs import make_spec

ALARM = FALSE_ALARM / 60
"""Chance that one attack on a true claim calls it broken."""
FEWER = {"shuffle": 1, "central": 4}
"""The attack on a curator takes longest: its samples are divided by four."""
CASES = {
    (case.model, case.name): tuple(replace(one, count=one.count // FEWER[case.model]) for one in (case, broken))
    for case, broken in zip(seen_cases(200_000), seen_cases(200_000, "hidden"), strict=True)
}
CHOICES = 40


def found(case: Case) -> AuditFinding:
    return _attacked(case, ALARM)


@pytest.mark.parametrize("name", CASES)
def test_a_seen_arm_does_not_break_the_promise(name: tuple[str, str]) -> None:
    assert found(CASES[name][0]).holds


@pytest.mark.parametrize("name", CASES)
def test_it_does_where_coins_that_chose_the_arm_travel_with_the_report(name: tuple[str, str]) -> None:
    """Planted: reports as they are where arms are hidden, at a first round and at a learned policy."""
    finding = found(CASES[name][1])
    assert not finding.holds
    assert finding.lower_bound is not None
    assert finding.lower_bound > finding.epsilon  # type: ignore[operator]


@pytest.mark.parametrize("place", range(2))
def test_reports_made_as_local_keep_epsilon_from_whoever_sees_the_arm_and_every_report(place: int) -> None:
    assert found(as_local_cases(200_000)[place]).holds
    planted = found(as_local_cases(200_000, 2.0)[place])
    assert not planted.holds, "planted: half of the noise"


def test_a_device_takes_reports_made_as_local_only_if_its_application_says_so() -> None:
    spec = shuffle_spec(**{"privacy.arms": "as-local"})
    with pytest.raises(TermsRefused, match=r"Limits\(arms='as-local'\)") as refusal:
        Participation(published(spec), "test", Limits())
    assert refusal.value.field == "arms"
    for arms in ("as-local", "hidden"):
        assert Participation(published(spec), "test", Limits(arms=arms)).terms.mechanism.local_epsilon == 1.0
    with pytest.raises(TermsRefused):
        Participation(published(shuffle_spec(**{"privacy.arms": "hidden"})), "test", Limits(arms="as-local"))


def test_a_device_refuses_more_than_epsilon_of_reports_made_as_local() -> None:
    """Planted: a server that amplifies them all the same."""
    hidden, as_local = (shuffle_spec(**{"privacy.arms": arms}) for arms in ("hidden", "as-local"))
    body = published(hidden, shown=as_local)
    with pytest.raises(TermsRefused) as refusal:
        Participation(body, "test", Limits(arms="hidden"))
    assert refusal.value.field == "local_epsilon"


def test_every_choice_has_coins_of_its_own(tmp_path: Path) -> None:
    """One coin a session lets a hostile policy of many bins single a person out by the arms that are seen.

    The chance that all choices agree although coins are fresh is 3^-39.
    """
    body = published(make_spec())
    answer = notarized(lambda _: httpx.Response(200, content=body))
    with Client("http://test", ledger=Ledger(tmp_path / "ledger.db"), transport=answer) as client:
        session = client.join("test")
        arms = {session.choose({"x1": 0.4, "x2": 0.4}, fresh=True) for _ in range(CHOICES)}
    assert len(arms) > 1


def test_a_device_refuses_a_promise_that_counts_on_hidden_arms() -> None:
    body = published(shuffle_spec(**{"privacy.arms": "hidden"}))
    with pytest.raises(TermsRefused) as refusal:
        Participation(body, "test", Limits())
    assert refusal.value.field == "arms"


def test_a_device_refuses_reports_keyed_by_bin_under_a_spec_with_seen_arms() -> None:
    body = published(shuffle_spec(**{"privacy.arms": "hidden"}), shown=shuffle_spec())
    with pytest.raises(Malformed):
        Participation(body, "test", Limits())
