"""Headlines of algorithms that choose by context say what is expected, and no more than the model knows."""

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.parts import ABOVE_CHANCE, Gain, Intervals
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_server.conclusions.by_context import add_context_findings, suggest_measurement, warn_of_chance_level
from privateer_server.conclusions.texts import AnswerFacts
from tests.support.answers import CONCLUSION
from tests.support.specs import SHUFFLE, make_spec

Array = NDArray[np.float64]
SPEC = make_spec({"experiment.arms": ["now", "new"], "context.features": {"days": {"low": 0, "high": 28}}})


def conclude_by_context(
    below: tuple[float, float], above: tuple[float, float], deviation: float, status: Any, gain: Gain | None = None
) -> Conclusion:
    """What follows from the mean rewards of both options below and above the middle of the number."""

    def means(contexts: Array) -> Array:
        return np.where(contexts[:, :1] < 0.5, np.array([below]), np.array([above]))

    def estimate_at(contexts: Array) -> tuple[Array, Array]:
        return means(contexts), np.full((len(contexts), 2), deviation)

    expected = ExpectedRewards.from_single_box(
        1, estimate_at, lambda _, weights: deviation * float(np.abs(weights).sum())
    )
    policy = SimpleNamespace(decide=lambda contexts, _: SimpleNamespace(arms=means(contexts).argmax(axis=1)))
    learned = AnswerFacts(SPEC, Answer(status, 2000, 2, None, gain=gain))
    return add_context_findings(CONCLUSION, learned, expected, policy)  # type: ignore[arg-type]


def test_a_known_gain_is_the_headline() -> None:
    conclusion = conclude_by_context((0.2, 0.6), (0.6, 0.2), 0.01, "ended")
    sentence = (
        "Choose by days. By the rules below a mean reward of 0.600 is expected instead of 0.400 with now for everybody:"
    )
    assert conclusion.headline.sentence.startswith(f"{sentence} +0.200 (+0.180 to +0.2")
    assert conclusion.means == pytest.approx((0.6, 0.4), abs=1e-3)
    assert conclusion.rules is not None
    assert [(rule.people, rule.arm) for rule in conclusion.rules.rules] == [
        ("days below 14", "new"),
        ("everybody else", "now"),
    ]


def test_an_uncertain_gain_recommends_no_arm_and_suggests_a_measurement() -> None:
    conclusion = conclude_by_context((0.2, 0.6), (0.6, 0.2), 0.2, "learning")
    sentence = "So far: it is not known whether choosing by days is better than now for everybody"
    assert conclusion.headline.sentence == f"{sentence}: +0.2 (-0.2 to +0.6) is expected."
    assert conclusion.headline.confidence_label == "not known"
    assert conclusion.next_steps == (
        "If choosing by context gains as much as is expected now, about 7,700 people in all would tell.",
        "Nobody measured the gain: it is what the model expects. With experiment.evaluation_fraction = 0.05 the last "
        "5% of the people do, in the next experiment.",
    )


MEASURED = Gain(
    "now", 0.0312, 0.0101, 0.0523, 1000, (Estimate("by context", 0.5, 0.4, 0.6), Estimate("now", 0.47, 0.4, 0.5))
)


@pytest.mark.parametrize(
    ("ends", "finding", "confidence_label", "says"),
    [
        (
            (0.0312, 0.0101, 0.0523),
            *("rules", "almost certain"),
            "Choose by days. Choosing by context gives +0.031 (95 % interval 0.010 to 0.052) above now for everybody, "
            "the best single option as far as is known: measured, a mean reward of 0.500 instead of 0.470.",
        ),
        (
            (0.01, -0.01, 0.03),
            *("rules", "not known"),
            "It is not known whether choosing by days is better than now for everybody: +0.010 (95 % interval "
            "-0.010 to 0.030) was measured.",
        ),
        (
            (-0.03, -0.05, -0.01),
            *("one arm", "almost certain"),
            "Give everybody now. Choosing by days as was learned gives -0.030 (95 % interval -0.050 to -0.010) beside "
            "it: measured, a mean reward of 0.500 instead of 0.470.",
        ),
    ],
)
def test_a_measured_gain_replaces_the_expected_one(ends, finding, confidence_label, says):
    value, low, high = ends
    gain = msgspec.structs.replace(MEASURED, value=value, low=low, high=high)
    conclusion = conclude_by_context((0.2, 0.6), (0.6, 0.2), 0.01, "ended", gain)
    assert (conclusion.headline.finding, conclusion.headline.confidence_label) == (finding, confidence_label)
    assert conclusion.headline.sentence == says
    assert (conclusion.gain, conclusion.is_measured, conclusion.means, conclusion.next_steps) == (
        gain,
        True,
        (0.5, 0.47),
        (),
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"experiment.evaluation_fraction": 0.1},
            "The gain is what the model expects; the last 2,000 people will measure it.",
        ),
        (
            {**SHUFFLE, "experiment.horizon": 8000},
            "With experiment.evaluation_fraction = 0.13 the last 13% of the people do",
        ),
        ({**SHUFFLE, "experiment.horizon": 1500}, "Nobody measured the gain: that takes 2,000 people in all."),
        ({"experiment.reports_per_person": 2}, None),
    ],
)
def test_a_gain_without_measurement_suggests_an_evaluation_fraction(changes: dict[str, Any], says: str | None) -> None:
    steps = suggest_measurement(make_spec(changes))
    assert bool(steps) is (says is not None)
    assert not says or says in steps[0]


@pytest.mark.parametrize(
    ("deviation", "confidence_label", "says"),
    [
        (0.02, "almost certain", "Give everybody new: +0.10 (+0.02 to +0.18) against now, the next best, is expected"),
        (0.035, "likely", "Everybody gets new, which is likely better than now: +0.10"),
        (0.1, "not known", "Everybody gets new, and it is not known whether that is better than now: +0.1"),
        (np.inf, "not known", "Everybody gets new, of which little is known."),
    ],
)
def test_one_arm_for_all_has_its_own_confidence(deviation: float, confidence_label: str, says: str) -> None:
    conclusion = conclude_by_context((0.4, 0.5), (0.4, 0.5), deviation, "ended")
    assert conclusion.headline.sentence.startswith(says)
    assert conclusion.headline.confidence_label == confidence_label
    assert conclusion.gain is None


def test_a_gap_between_arms_is_limited_to_the_reward_range() -> None:
    """An estimate far below the lowest reward is noise, and makes nobody sure of another option."""
    behind, lowest = (conclude_by_context((low, 0.05), (low, 0.05), 0.02, "ended").headline for low in (-0.2, 0.0))
    assert behind == lowest
    assert behind.confidence_label != "almost certain"
    assert behind.value == pytest.approx(0.05)


def test_a_best_arm_worse_than_chance_is_a_warning() -> None:
    """The best single option was a guess from what the learner knew, and the people who measured contradict it."""

    def warnings(above_any: float) -> tuple[str, ...]:
        chance = Intervals(
            "gain", "difference", (Estimate(ABOVE_CHANCE, above_any, above_any - 0.02, above_any + 0.02),)
        )
        return warn_of_chance_level(Answer("ended", 2000, 2, 0.95, gain=MEASURED, parts=(chance,)))

    assert warnings(0.05) == warnings(0.03) == ()
    assert "another may be the best one" in warnings(0.01)[0]
    assert warn_of_chance_level(Answer("ended", 2000, 2, 0.95, gain=MEASURED)) == ()
