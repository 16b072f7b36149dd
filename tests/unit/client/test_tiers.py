"""A device takes the highest tier that its limits allow, and no other, whatever the server publishes."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_client import Client, Ledger, Limits, ReportStatus
from privateer_client.participation import Participation
from privateer_core.errors import TermsRefused
from privateer_core.mechanisms.tiered_symbol import TieredSymbol
from privateer_core.spec.spec import Spec
from tests.support.devices import still
from tests.support.experiments import CONTEXT, WEEK, Device, Server
from tests.support.notary import notarized
from tests.support.publications import published
from tests.support.specs import make_spec

TIERS = [{"name": "generous", "epsilon": 2.0, "share": 0.3}, {"name": "careful", "epsilon": 0.5, "share": 0.2}]
EVERY_TIER = {"": 1.0, "generous": 2.0, "careful": 0.5}


def spec_with_tiers(**changes: Any) -> Spec:
    return make_spec({"privacy.tiers": TIERS, **changes})


@pytest.mark.parametrize(
    ("limits", "tier"),
    [
        (Limits(epsilon=0.5), "careful"),
        (Limits(epsilon=0.9), "careful"),
        (Limits(epsilon=1.0), ""),
        (Limits(epsilon=1.9), ""),
        (Limits(epsilon=2.0), "generous"),
        (Limits(epsilon=16.0), "generous"),
        (Limits(epsilon=16.0, local_epsilon=1.5), ""),
    ],
)
def test_the_tier_is_the_highest_that_the_limits_allow(limits: Limits, tier: str) -> None:
    participation = Participation(published(spec_with_tiers()), "test", limits)
    assert participation.tier == tier
    assert participation.terms.epsilon == participation.terms.mechanism.local_epsilon == EVERY_TIER[tier]
    assert participation.terms.local_epsilon == EVERY_TIER[tier]


def test_a_device_below_every_tier_takes_no_part() -> None:
    with pytest.raises(TermsRefused) as refused:
        Participation(published(spec_with_tiers()), "test", Limits(epsilon=0.4))
    assert refused.value.field == "epsilon"


@pytest.mark.parametrize("tier", EVERY_TIER)
def test_a_report_is_in_the_alphabet_of_its_tier(tier: str) -> None:
    participation = Participation(published(spec_with_tiers()), "test", Limits(epsilon=EVERY_TIER[tier]))
    mechanism, rng = participation.terms.mechanism, np.random.default_rng(3)
    assert isinstance(mechanism, TieredSymbol)
    contexts, coins = rng.random((500, 2)), participation.draw_coins(500)
    contributions = participation.policy.contribute(
        contexts, coins, participation.decide(contexts, coins), np.ones(500)
    )
    symbols = mechanism.randomize(contributions, participation._noise)["symbol"]
    index = ("", "generous", "careful").index(tier)
    assert mechanism.first_symbols[index] <= symbols.min()
    assert symbols.max() < mechanism.first_symbols[index + 1]


def test_the_ledger_says_what_the_tier_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    still(monkeypatch)
    ledger = Ledger(tmp_path / "ledger.db")
    server = Server(published(spec_with_tiers()))
    with Client("http://s", ledger=ledger, limits=Limits(epsilon=2.0), transport=notarized(server)) as client:
        session = client.join("test")
        session.choose(CONTEXT)
        assert session.report(1.0) is ReportStatus.ACCEPTED
    (payment,) = ledger.payments()
    assert (payment.epsilon, payment.local_epsilon) == (2.0, 2.0)


def test_people_of_one_process_have_limits_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    still(monkeypatch)
    ledger = Ledger(tmp_path / "ledger.db")
    server = Server(published(spec_with_tiers()))
    with Client("http://s", ledger=ledger, transport=notarized(server)) as client:
        for key, limits in {"a": Limits(epsilon=0.5), "b": Limits(epsilon=2.0), "c": None}.items():
            session = client.person(key, limits=limits).join("test")
            session.choose(CONTEXT)
            assert session.report(1.0) is ReportStatus.ACCEPTED
        epsilons = [ledger.person(key).payments()[0].epsilon for key in ("a", "b", "c")]
    assert epsilons == [0.5, 2.0, 1.0]


# A server that would like more


def test_tiers_that_are_added_or_raised_after_a_choice_get_no_report(tmp_path: Path) -> None:
    for number, tiers in enumerate(([TIERS[0] | {"epsilon": 1.5}, TIERS[1]], [])):
        (tmp_path / str(number)).mkdir()
        device = Device(tmp_path / str(number), Server(published(spec_with_tiers())))
        session = device.start().join("test")
        session.choose(CONTEXT)
        device.clock.time += 60
        device.server.moves_on(make_spec({"privacy.tiers": tiers} if tiers else {}), 2)
        with pytest.raises(TermsRefused):
            session.report(1.0)
        assert (device.server.posts, device.ledger().payments()) == ([], [])


def test_a_choice_is_not_reported_at_a_higher_tier_than_its_own(tmp_path: Path) -> None:
    """The person chose with a limit of 1, and the process that reports later allows 2."""
    waiting = {"experiment.conversion_window_seconds": WEEK}
    device = Device(tmp_path, Server(published(spec_with_tiers(**waiting))))
    session = device.start(limits=Limits(epsilon=1.0)).join("test")
    session.choose(CONTEXT)
    session.report(1.0)
    device.clock.time += 1.1 * WEEK
    with suppress(TermsRefused):
        device.start(limits=Limits(epsilon=2.0)).flush()
    assert device.server.posts == []
    assert device.start(limits=Limits(epsilon=1.0)).flush() == {"test": ReportStatus.ACCEPTED}
    (payment,) = device.ledger().payments()
    assert payment.epsilon == 1.0


def test_terms_of_another_tier_than_the_devices_are_not_used() -> None:
    """Planted: without the choice of the device, terms of the highest tier cost more than the limits allow."""
    participation = Participation(published(spec_with_tiers()), "test", Limits(epsilon=0.5))
    highest = replace(
        participation.terms, mechanism=participation.spec.tier_terms(participation.terms, "generous").mechanism
    )
    assert participation.terms.keeps_promise
    assert not highest.keeps_promise
