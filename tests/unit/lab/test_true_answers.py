"""Headline, sentences, tables and JSON of an answer agree, and are true of the rows, whatever the rows are like."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

import privateer_lab as lab
from privateer_core.answer.conclusion import Conclusion
from privateer_core.answer.estimates import Effect, Reason
from privateer_core.answer.parts import Losses, Recommendations
from privateer_core.answer.shares import ShareSource
from privateer_lab.finished_test import FinishedTest

LEVELS = ("s", "t", "u", "v")
Rewards = Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]


def bits(*effects: float) -> Rewards:
    """Yes or no with a rate of .3, and another effect in each segment."""
    rates = np.array(effects)
    return lambda rng, arms, groups: (rng.random(len(arms)) < 0.3 + (arms > 0) * rates[groups]).astype(float)


def money(scale: float, effect: float) -> Rewards:
    """Log-normal amounts: the larger the scale, the fewer rows bear their mean."""
    return lambda rng, arms, _: rng.lognormal(0.0, scale, len(arms)) * (1 + effect * (arms > 0))


SHARES = {
    "skewed": (0.9, 0.05, 0.05, 0.0),
    "equal": (0.25,) * 4,
    "one": (1.0, 0.0, 0.0, 0.0),
    "few": (0.98, 0.01, 0.01, 0),
}
REWARDS = {
    "no effect": bits(0, 0, 0, 0),
    "harmful": bits(-0.15, -0.15, -0.15, -0.15),
    "better": bits(0.15, 0.15, 0.15, 0.15),
    "mixed": bits(-0.1, 0.25, 0.25, 0.1),
    "one apart": lambda _, arms, __: (np.arange(len(arms)) > 0).astype(float),
    "rare": lambda rng, arms, _: (rng.random(len(arms)) < 0.003).astype(float),
    "money": money(1.0, -0.3),
    "heavy tail": money(4.0, 0.2),
}
CASES = [
    pytest.param(shares, rewards, options, people, seed, id=f"{shares}-{rewards}-{options}-{people}")
    for seed, (shares, rewards, options, people) in enumerate(
        [
            (one, other, 2 + (n + m) % 2, (4_000, 600)[n % 2])
            for n, one in enumerate(SHARES)
            for m, other in enumerate(REWARDS)
        ]
    )
]


class Rows:
    """The rows of a test, and what was found of them."""

    def __init__(self, shares: str, rewards: str, options: int, people: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.arms = rng.integers(0, options, people)
        self.groups = rng.choice(4, people, p=np.array(SHARES[shares]) / sum(SHARES[shares]))
        self.rewards = REWARDS[rewards](rng, self.arms, self.groups)
        rows = {
            "arm": np.array(["now", "new", "other"])[self.arms],
            "group": np.array(LEVELS)[self.groups],
            "reward": self.rewards,
        }
        self.found: FinishedTest = lab.analyze(rows, control="now", segments={"group": LEVELS})

    def of(self, effect: Effect) -> list[np.ndarray]:
        """The rewards of an option and of the control in a group."""
        here = np.array([effect.group in (None, name) for name in self.names])[self.groups]
        place = ["now", "new", "other"].index(effect.option)
        return [self.rewards[here & (self.arms == arm)] for arm in (place, 0)]

    @property
    def names(self) -> tuple[str, ...]:
        return ("group=s", "group=t", "group=u", "group=v")


def is_true(reason: Reason, rewards: list[np.ndarray], span: float, interval: tuple[Any, Any]) -> bool:
    """Whether a reason is true of the numbers beside it."""
    means, low, high = [one.mean() if len(one) else 0.5 for one in rewards], *interval
    people = min(map(len, rewards))
    near = min(np.mean(means), span - np.mean(means))
    spread = np.mean([one.var() if len(one) else 0.0 for one in rewards])
    is_bits = set(np.concatenate(rewards).tolist()) <= {0.0, 1.0} and span == 1
    facts = {
        Reason.BETTER: low is not None and low > 0,
        Reason.WORSE: high is not None and high < 0,
        Reason.HOLDS_ZERO: low is not None and low <= 0 <= high,
        Reason.CORRECTED: low is not None and not low <= 0 <= high,
        Reason.FEW_PEOPLE: people < (40 if is_bits else 100),
        Reason.RARE: is_bits and people * near < 20,
        Reason.HEAVY_TAIL: not is_bits and people * near**2 < 20 * spread,
        Reason.UNRESOLVED: spread < 1e-9 * span**2,
    }
    return bool(facts.get(reason, False))


@pytest.mark.parametrize(("shares", "rewards", "options", "people", "seed"), CASES)
def test_an_answer_is_true_of_its_rows(shares: str, rewards: str, options: int, people: int, seed: int) -> None:
    rows = Rows(shares, rewards, options, people, seed)
    answer, conclusion = rows.found.answer, rows.found.found.conclusion
    assert msgspec.json.decode(msgspec.json.encode(conclusion), type=Conclusion) == conclusion
    inhabited = [rows.names[k] for k in range(4) if (rows.groups == k).any()]
    assert {one.group for one in answer.effects} == {None, *inhabited}
    for one in answer.effects:
        assert (one.low is None) == (one.high is None)
        assert one.low is None or one.low < one.value < one.high, "no interval of width 0"
        span = conclusion.reward.high - conclusion.reward.low
        assert is_true(one.reason, rows.of(one), span, (one.low, one.high)), one
    _agrees(rows, conclusion)
    losses = answer.first_of(Losses)
    assert losses is not None
    assert len(losses.losses) == len(inhabited)
    assert conclusion.losses == losses.losses
    assert conclusion.gain is None, "nobody measured one"


def _agrees(rows: Rows, conclusion: Conclusion) -> None:
    """The rules are what everybody gets, with the shares that were counted; the headline says the same."""
    given = rows.found.answer.first_of(Recommendations)
    assert given is not None
    arms = {one.group: one.option for one in given.rules}
    assert conclusion.rules is not None
    assert conclusion.rules.source is ShareSource.COUNTED
    assert conclusion.rules.people.startswith(ShareSource.COUNTED.sentence)
    for option in {*arms.values()}:
        counted = np.mean([arms[rows.names[group]] == option for group in rows.groups.tolist()])
        told = sum(one.share for one in conclusion.rules.rules if one.option == option)
        assert told == pytest.approx(counted, abs=2e-3)
    assert sum(one.share for one in conclusion.rules.rules) == pytest.approx(1, abs=1e-3)
    headline, everybody = conclusion.headline, {one.option: one for one in conclusion.effects if one.group is None}
    better = {(one.group, one.option) for one in conclusion.effects if one.reason is Reason.BETTER}
    for group, option in arms.items():
        assert option == "now" or {(group, option), (None, option)} & better, "nobody gets what is not decided"
    if len({*arms.values()}) > 1:
        assert (headline.finding, headline.option) == ("rules", None)
        assert all(f"{one.option} " in headline.sentence for one in conclusion.rules.rules)
        return
    assert (headline.finding, headline.option) == ("one option", next(iter(arms.values())))
    said = "eep now" if headline.option == "now" else f"ive everybody {headline.option}"
    assert said in headline.sentence
    if headline.sureness == "decided":
        wanted = {Reason.WORSE} if headline.option == "now" else {Reason.BETTER}
        assert {one.reason for name, one in everybody.items() if headline.option in ("now", name)} == wanted
        assert {one.sureness for one in conclusion.rules.rules} == {"decided"}
    if len(conclusion.rules.rules) == 1:
        _leads_by_effects(conclusion, everybody)
    if headline.compared:
        effect = everybody[headline.compared]
        assert (headline.value, headline.low, headline.high) == (effect.value, effect.low, effect.high)


def _leads_by_effects(conclusion: Conclusion, everybody: Mapping[str, Effect]) -> None:
    """What everybody gets is ahead by the effects on everybody, to the digit."""
    assert conclusion.rules is not None
    [rule] = conclusion.rules.rules
    means = {"now": 0.0} | {option: one.value for option, one in everybody.items() if one.value is not None}
    rest = {option: mean for option, mean in means.items() if option != rule.option}
    if rest and rule.option in means:
        assert rule.next_best == max(rest, key=lambda option: rest[option])
        assert rule.difference == pytest.approx(means[rule.option] - max(rest.values()), abs=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_under_noise_a_rule_for_everybody_is_ahead_by_their_effect(seed: int) -> None:
    """Precise segments weigh more in the effect than in an average by people, by .003 here."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(3, 3_000, p=[0.6, 0.3, 0.1])
    rows = {
        "arm": rng.choice(["now", "new"], 3_000),
        "group": np.array(["s", "t", "u"])[groups],
        "reward": rng.random(3_000) < np.array([0.03, 0.5, 0.8])[groups],
    }
    levels, shares = {"group": ["s", "t", "u"]}, {"now": 0.5, "new": 0.5}
    conclusion = lab.analyze(rows, control="now", segments=levels, epsilon=1.0, shares=shares).found.conclusion
    _leads_by_effects(conclusion, {one.option: one for one in conclusion.effects if one.group is None})


def test_a_heavy_tail_names_the_rows_that_decide_and_what_capping_does() -> None:
    """Two rows of 374 make half of an arm's money; without them it is worse."""
    rng = np.random.default_rng(3)
    spend = [rng.exponential(165, 3_000) * (rng.random(3_000) < 0.5), rng.exponential(90, 374)]
    spend[1][:2] = (18_000.0, 25_000.0)
    rows = {"arm": np.repeat(["now", "new"], [3_000, 374]), "reward": np.concatenate(spend)}
    shares = {"now": 3_000 / 3_374, "new": 374 / 3_374}
    found = lab.analyze(rows, shares=shares, control="now")
    [effect] = found.answer.effects
    assert (effect.reason, effect.low) == (Reason.HEAVY_TAIL, None)
    assert effect.value == pytest.approx(spend[1].mean() - spend[0].mean(), abs=1e-4)
    said = found.found.conclusion.surer[0]
    top, beyond = spend[1][:2].sum() / spend[1].sum(), np.quantile(rows["reward"], 0.98)
    assert f"2 of 374 rows of new make {top:.0%} of its reward" in said
    assert f"--bounds 0:{beyond:.4g}, which caps 68 of 3,374 rows" in said
    capped = lab.analyze(rows, shares=shares, bounds=(0.0, float(beyond)), control="now").answer.effects[0]
    assert capped.low is not None
    assert f"{capped.value:+.4g} ({capped.low:+.4g} to {capped.high:+.4g}): {capped.reason}" in said


def test_bounds_that_are_named_are_those_of_what_is_lower_the_better() -> None:
    """A learner is given the negative of numbers; nobody reads of it."""
    waits = 500 + 0.3 * np.random.default_rng(1).standard_normal(4_000)
    rows = {"arm": np.repeat(["now", "new"], 2_000), "reward": waits}
    found = lab.analyze(rows, control="now", bounds=(0.0, 1e6), lower_is_better=True)
    [effect] = found.answer.effects
    assert effect.remark == "if they vary at all, bounds of 492 to 508 tell by how much"
    assert effect.bounds == pytest.approx((492, 508), abs=1)
    assert (found.found.conclusion.reward.low, found.found.conclusion.reward.high) == (0.0, 1e6)
    assert "-" not in " ".join(found.found.conclusion.surer)


def test_rows_are_no_people_whom_a_horizon_ended() -> None:
    rows = {"arm": np.repeat(["now", "new"], 500), "reward": np.tile([0.0, 1.0], 500)}
    found = lab.analyze(rows, control="now")
    assert found.answer.ended == "its rows"
    assert not any("horizon" in note for note in found.notes)
