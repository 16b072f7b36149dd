"""Coins of sent reports: honest devices hold for every algorithm and trust model, and coins that leak are caught.

Words of the operating system are seeded. A part that is right fails with a chance of 1e-6 over the choice of the seed.
Of 250 reports, half are in the upper half of the coins with a standard deviation of 8; of the larger of two draws
three quarters are, 7.9 standard deviations beyond.
"""

from collections.abc import Mapping
from contextlib import contextmanager
from functools import partialmethod
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_client.participation import Participation
from privateer_client.session import Session
from privateer_core.algorithms import ALGORITHMS
from privateer_core.mechanisms import VectorSymbol
from privateer_core.mechanisms.mechanism import with_coins
from privateer_lab.audit import whole_experiments as experiments
from privateer_lab.audit.case import MechanismPart
from privateer_lab.audit.sent_coins import PART_NAME, coin_parts
from privateer_lab.audit.suite import device_parts, run_audit
from privateer_lab.audit.whole_experiments import iterate_tight_claims

ALARM = 1e-6
SAMPLES = 125_000
"""Samples of an audit in which each neighbour sends 250 reports to a round."""
FEW_SAMPLES = 50_000
"""Samples of an audit with 100 of them: enough for coins that are the same for the same record."""
SENT = {
    "additive": ["local", "shuffle"],
    "bandit": ["local", "shuffle"],
    "convex": ["central", "local", "shuffle"],
    "linear": ["local", "shuffle"],
    "partition": ["central", "local", "shuffle"],
    "phased": ["local"],
    "sparse": ["local"],
    "trial": ["local", "shuffle"],
    "paper-1-proved": ["central", "local", "shuffle"],
}
"""Trust models under which an algorithm's reports contain coins; other reports contain none."""
FRESH = ("additive", "bandit", "linear", "partition")
"""Algorithms some of whose reports have coins of their own, beside those that chose the arm."""

pytestmark = pytest.mark.battery(of="coins")


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(31)
    monkeypatch.setattr("os.urandom", rng.bytes)


def parts_of(name: str, samples: int) -> list[MechanismPart]:
    """Return the coin parts of one algorithm, and calibrate no experiment of another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "ALGORITHMS", (name,))
        return coin_parts(samples, {name})


def coins_seeded_by_the_context(patch: pytest.MonkeyPatch) -> None:
    """A device whose generator of coins is seeded by the context."""
    choose, draw_coins, generators = Session.choose, Participation.draw_coins, list[np.random.Generator]()

    def choose_and_seed(self: Any, context: Mapping[str, Any] = {}, **options: Any) -> Any:
        generators[:] = [np.random.default_rng(list(repr(sorted(context.items())).encode()))]
        return choose(self, context, **options)

    def draw_by_context(self: Participation, count: int) -> Any:
        return generators[0].integers(0, 2**32, count, dtype=np.uint32) if generators else draw_coins(self, count)

    patch.setattr("privateer_client.own_session.OwnSession.choose", choose_and_seed)
    patch.setattr(Participation, "draw_coins", draw_by_context)


def coins_picked_by_the_reward(patch: pytest.MonkeyPatch) -> None:
    """A device that draws twice, and sends the larger draw with a high reward, and else the smaller one."""
    make_reports, draw_coins, are_high = Participation.make_reports, Participation.draw_coins, list[bool]()

    def pick(self: Participation, count: int) -> Any:
        draws = [draw_coins(self, count) for _ in range(1 + len(are_high))]
        return np.max(draws, axis=0) if any(are_high) else np.min(draws, axis=0)

    def make_with_picked(
        self: Participation, contexts: Any, coins: Any, decisions: Any, rewards: Any, *versions: Any
    ) -> Any:
        are_high[:] = [float(np.asarray(rewards, float).ravel()[0]) > 0.5]
        sent_coins = coins if self.policy.has_fresh_coins else pick(self, len(coins))
        try:
            return make_reports(self, contexts, sent_coins, decisions, rewards, *versions)
        finally:
            are_high.clear()

    patch.setattr(Participation, "make_reports", make_with_picked)
    patch.setattr(Participation, "draw_coins", pick)


@contextmanager
def _sent_again(participation: Participation, coins: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(participation, "draw_coins", lambda _: coins)
        yield


def coins_that_chose_the_arm(patch: pytest.MonkeyPatch) -> None:
    """A device that sends the coins of the choice where a report has coins of its own."""
    make_reports = Participation.make_reports

    def make_with_old_coins(self: Participation, contexts: Any, coins: Any, *arguments: Any) -> Any:
        with _sent_again(self, coins):
            return make_reports(self, contexts, coins, *arguments)

    patch.setattr(Participation, "make_reports", make_with_old_coins)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_coins_of_honest_devices_hold(name: str) -> None:
    parts = parts_of(name, FEW_SAMPLES)
    models = {spec.privacy.model for _, _, spec, _ in iterate_tight_claims({name})}
    assert [(part.name, part.model) for part in parts] == [(PART_NAME, model) for model in sorted(models)]
    for part in parts:
        result = part.examine(ALARM)
        assert result.is_satisfied, (name, part.model, result)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_coins_that_depend_on_the_context_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of(name, FEW_SAMPLES)
    coins_seeded_by_the_context(monkeypatch)
    for part in parts:
        result = part.examine(ALARM)
        assert not result.is_satisfied, (name, part.model, result)


@pytest.mark.parametrize("name", SENT)
def test_coins_that_depend_on_the_reward_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a leak of rewards in reports with coins; a choice is made before its reward is known."""
    parts = [part for part in parts_of(name, SAMPLES) if part.model in SENT[name]]
    assert len(parts) == len(SENT[name])
    coins_picked_by_the_reward(monkeypatch)
    for part in parts:
        result = part.examine(ALARM)
        assert not result.is_satisfied, (name, part.model, result)


def further_coins_of_the_first_message(patch: pytest.MonkeyPatch) -> None:
    """Further messages with the first message's coins: a permuted batch links a person's messages."""
    patch.setattr(VectorSymbol, "randomize", partialmethod(_randomize_with, lambda first, _: first))


def further_coins_picked_by_the_record(patch: pytest.MonkeyPatch) -> None:
    """Messages after the first one have the larger of two draws, if the vector's first number is not negative."""
    rng = np.random.default_rng(5)

    def pick(first: Any, is_picked: Any) -> Any:
        draws = rng.integers(0, 2**32, (2, len(first)), dtype=np.uint32)
        return np.where(is_picked, draws.max(axis=0), draws[0])

    patch.setattr(VectorSymbol, "randomize", partialmethod(_randomize_with, pick))


def _randomize_with(self: Any, draw_further: Any, contributions: Any, noise: Any) -> Any:
    is_picked = contributions.values[:, 0] >= 0
    further = [draw_further(contributions.coins, is_picked) for _ in range(self.repeats - 1)]
    coins = np.stack([contributions.coins, *further], axis=1).ravel()
    values = np.repeat(contributions.values, self.repeats, axis=0)
    repeated = msgspec.structs.replace(contributions, coins=coins, values=values)
    symbols = self.response.randomize(self.own_symbols(repeated), noise)
    return with_coins(coins, symbols).reshape(-1, self.repeats)


@pytest.mark.parametrize(
    "plant", [further_coins_of_the_first_message, further_coins_picked_by_the_record], ids=lambda p: p.__name__
)
def test_coins_of_further_messages_are_attacked_each(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device draws coins for the first of several shuffled messages; mechanisms draw further coins."""
    (part,) = (part for part in parts_of("linear", SAMPLES) if part.model == "shuffle")
    assert part.examine(ALARM).is_satisfied
    plant(monkeypatch)
    assert not part.examine(ALARM).is_satisfied


@pytest.mark.parametrize("name", FRESH)
def test_coins_of_the_choice_in_place_of_fresh_ones_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of(name, FEW_SAMPLES)
    coins_that_chose_the_arm(monkeypatch)
    assert not all(part.examine(ALARM).is_satisfied for part in parts)


@pytest.mark.parametrize("plant", [coins_seeded_by_the_context, coins_picked_by_the_reward], ids=lambda p: p.__name__)
def test_a_device_that_has_not_chosen_or_reported_does_not_show_these_defects(plant, monkeypatch):
    """Before there were these parts, the audit drew coins without a choice, and said that the defects hold."""
    plant(monkeypatch)
    coins_of_device = next(part for part in device_parts() if part.name == "coins of a device")
    assert coins_of_device.examine(ALARM).is_satisfied


def test_the_audit_names_the_algorithm_whose_coins_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "bandit"
    monkeypatch.setattr(experiments, "ALGORITHMS", (name,))
    coins_seeded_by_the_context(monkeypatch)
    findings = [finding for finding in run_audit(1000, {name})[1] if finding.attack == f"part: {PART_NAME}"]
    expected = [(name, model, "broken") for model in ("central", "local", "shuffle")]
    assert [(finding.mechanism, finding.model, finding.verdict) for finding in findings] == expected
