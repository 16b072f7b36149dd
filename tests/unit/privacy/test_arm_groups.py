"""Terms, devices, certificates and records of visible arms that coins alone choose."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.algorithms import algorithm
from privateer_core.errors import Malformed, SpecError, TermsRefused
from privateer_core.mechanisms import GroupedBit, SignedSymbol
from privateer_core.primitives.public_coins import Layout
from privateer_core.privacy.certificate import certify, recompute
from privateer_core.privacy.record import PlannedTerms, describe_terms, read_terms
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.wire.publication import Round
from tests.contract.subjects import specs
from tests.support.people import rounds

SHUFFLED = ["bandit-shuffle-grouped", "convex-shuffle-grouped"]


def open_last(name):
    """Return a spec, and the policy of its last round with reports."""
    spec = specs()[name]
    return spec, [round_.policy for round_ in rounds(spec, seed=1) if round_.policy.terms.batch_size][-1]


@pytest.mark.parametrize("name", SHUFFLED)
def test_every_arm_keeps_the_promise_by_itself(name):
    spec, policy = open_last(name)
    mechanism, privacy = policy.terms.mechanism, spec.privacy
    policy.check(spec)
    assert isinstance(mechanism, GroupedBit)
    assert not policy.has_fresh_coins
    assert policy.terms.keeps_promise
    for epsilon, share in zip(mechanism.epsilons, mechanism.promised_shares, strict=True):
        assert epsilon >= privacy.epsilon
        assert share <= 1
    for event in policy.terms.event.events:
        assert account(event).delta(privacy.epsilon) <= privacy.delta * (1 + 1e-6)
        assert account(event).delta(privacy.epsilon) > privacy.delta / 2 or event.local_epsilon in (1.0, 4.0)


def test_a_side_of_a_direction_is_a_group():
    """With shares of directions the bound would count on twice the participants of a point."""
    spec, policy = open_last("convex-shuffle-grouped")
    shares = policy.terms.mechanism.layout.shares[0]
    assert len(shares) == 2 * spec.domain.dimension
    coins = np.arange(4000, dtype=np.uint32)
    arms = policy.decide(np.zeros((4000, 0)), coins).arms
    assert np.array_equal(arms, policy.terms.mechanism.coin_groups(coins))


def test_a_batch_that_counts_on_everybody_is_refused():
    """Planted: coins that chose the arm, and a bit as exact as all of the batch together would allow."""
    spec, policy = open_last("bandit-shuffle-grouped")
    whole = SignedSymbol(policy.layout, min(policy.terms.mechanism.epsilons), 1, elsewhere=False)
    with pytest.raises(Malformed):
        replace(policy, terms=replace(policy.terms, mechanism=whole)).check(spec)
    with pytest.raises(Malformed):
        replace(policy, choice=policy.layout).check(spec)


def test_a_share_that_is_smaller_than_its_epsilon_allows_is_refused():
    spec = specs()["bandit-shuffle-grouped"]
    policy = next(iter(rounds(spec, seed=1))).policy
    facts = Round(spec.name, 1, spec.privacy.model, policy.terms.batch_size, 70, bytes(32), 1)
    limits = Limits(epsilon=1.0, delta=1e-6, arm_visibility="grouped")
    verify(policy.terms, spec, "", facts, limits)
    layout = Layout(policy.layout.seed, np.array([[2_000, 34_000]], np.uint32))
    mechanism = GroupedBit(layout, policy.terms.mechanism.epsilons)
    with pytest.raises(TermsRefused) as refused:
        verify(replace(policy.terms, mechanism=mechanism), spec, "", facts, limits)
    assert refused.value.field == "delta"


def with_values(name, **tables):
    """Return an instance with changed values in its sections."""
    body = specs()[name].model_dump(mode="json")
    return type(specs()[name]).model_validate(body | {table: body[table] | values for table, values in tables.items()})


@pytest.mark.parametrize("name", ["partition-shuffle", "linear-shuffle", "trial-shuffle", "sparse-shuffle"])
def test_groups_are_for_arms_that_coins_alone_choose(name):
    with pytest.raises(SpecError, match="whose coins alone choose"):
        with_values(name, privacy={"arm_visibility": "grouped"})


def test_groups_have_no_late_reports_and_no_curator():
    with pytest.raises(SpecError, match="have no late reports"):
        with_values("bandit-shuffle-grouped", experiment={"conversion_window_seconds": 3600.0})
    with pytest.raises(SpecError, match="private by themselves"):
        with_values("bandit-central", privacy={"arm_visibility": "grouped"})


def test_seen_arms_count_on_nobody_who_drops_reports_by_arm():
    """The arm is in the key there: 100 of 1,000 people may be missing, all of one arm. Groups need consent for that."""
    visible, grouped = specs()["bandit-shuffle"], specs()["bandit-shuffle-grouped"]
    assert (visible.groups_arms, grouped.groups_arms) == (False, True)
    certificates = [
        certify(spec.name, spec.privacy, [open_last(name)[1].terms])
        for spec, name in ((visible, "bandit-shuffle"), (grouped, "bandit-shuffle-grouped"))
    ]
    assert [any("chooses by arm" in text for text in cert.assumes) for cert in certificates] == [False, True]


@pytest.mark.parametrize(
    ("visibility", "accepted"), [("visible", False), ("as-local", False), ("grouped", True), ("hidden", True)]
)
def test_a_device_takes_groups_with_the_applications_consent_alone(visibility, accepted):
    spec, policy = (
        specs()["bandit-shuffle-grouped"],
        next(iter(rounds(specs()["bandit-shuffle-grouped"], seed=1))).policy,
    )
    facts = Round(spec.name, 1, spec.privacy.model, policy.terms.batch_size, 70, bytes(32), 1)
    limits = Limits(epsilon=1.0, delta=1e-6, arm_visibility=visibility)
    if accepted:
        verify(policy.terms, spec, "", facts, limits)
        return
    with pytest.raises(TermsRefused, match="drop or to falsify") as refused:
        verify(policy.terms, spec, "", facts, limits)
    assert refused.value.field == "arm_visibility"


def test_the_certificate_claims_the_worst_arm_and_not_the_mean():
    spec, policy = open_last("bandit-shuffle-grouped")
    shares = Layout(1, np.array([[1_000, 30_000]], np.uint32))
    uneven = GroupedBit.amplified(spec.make_question(shares), 1.0, 1e-6, policy.terms.honest, 4.0)
    certificate = certify(spec.name, spec.privacy, [policy.terms, replace(policy.terms, mechanism=uneven)])
    claim = certificate.claims[0]
    assert {event.share for event in claim.event.events} >= {share for share in uneven.promised_shares if share}
    assert all(verdict.holds for verdict in recompute(certificate))
    assert any("does not depend on the arm" in text for text in certificate.assumes)
    # Planted: bits of the smallest arm that count on a third of the people.
    wrong = msgspec.structs.replace(uneven, epsilons=(max(uneven.epsilons),) * 3)
    broken = certify(spec.name, spec.privacy, [replace(policy.terms, mechanism=wrong)])
    assert not recompute(broken)[0].holds


def test_a_record_row_has_the_shares_of_arms():
    spec, policy = open_last("bandit-shuffle-grouped")
    row = describe_terms(policy.terms)
    assert sum(row.mechanism["shares"]) == 65_536
    assert read_terms(row, type(spec), spec.privacy, 1).event == policy.terms.event


@pytest.mark.parametrize("shares", [None, [], [65_536], [65_535, 0, 0], [-1, 65_537, 0], [1.0, 65_535, 0], "abc", {}])
def test_a_row_of_other_shares_is_refused(shares):
    spec, policy = open_last("bandit-shuffle-grouped")
    row = describe_terms(policy.terms)
    wrong = PlannedTerms(batch_size=row.batch_size, honest=row.honest, mechanism=row.mechanism | {"shares": shares})
    with pytest.raises(SpecError, match="mechanism"):
        read_terms(wrong, type(spec), spec.privacy, 1)


def test_a_local_policy_has_no_groups():
    assert algorithm("bandit").spec.capabilities.coins_decide
    _, policy = open_last("bandit-local")
    assert not isinstance(policy.terms.mechanism, GroupedBit)
