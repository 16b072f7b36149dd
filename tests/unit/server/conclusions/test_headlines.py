"""Headlines say what is known, name the control and the interval, and name no option as better where that is open."""

from typing import Any

import msgspec
import pytest

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion, Headline, PrivacyCost, RewardUnit, Rule, Rules
from privateer_core.answer.estimates import Effect, Estimate, MeasuredRate
from privateer_core.answer.parts import DriftTest, Gain, GuardrailEffects
from privateer_core.answer.policy_view import Coefficients, Point
from privateer_core.answer.share_source import ShareSource
from privateer_server.conclusions.conclusion import conclude, describe_privacy_cost
from privateer_server.conclusions.headlines import (
    effects_headline,
    estimate_baseline,
    explain_no_relative,
    options_headline,
    point_headline,
    scores_headline,
    suggest_size,
    suggest_sizes,
)
from privateer_server.conclusions.texts import AnswerFacts, choose_decimals, format_difference, shorten
from privateer_server.rounds.schedule import Schedule
from tests.support.specs import make_spec

SPEC = make_spec({"experiment.arms": ["now", "short", "long"]})


def make_facts(status: Any = "ended", **parts: Any) -> AnswerFacts:
    return AnswerFacts(SPEC, Answer(status, 4000, 4, 0.95, **parts))


BETTER = Effect("short", None, 0.02, 0.01, 0.03, "decided better")
WORSE = Effect("short", None, -0.02, -0.03, -0.01, "decided worse")
OPEN = Effect("long", None, 0.01, -0.01, 0.03, "its interval holds 0")


def test_a_decided_effect_is_named_with_control_interval_and_lift() -> None:
    baseline = estimate_baseline(SPEC, MeasuredRate(0.2, 0.19, 0.21))
    headline = effects_headline(make_facts(effects=(BETTER, OPEN)), None, baseline)
    sentence = (
        "Give everybody short: +0.020 (+0.010 to +0.030) against now's mean of 0.200, which is +10%. That is decided."
    )
    assert headline.sentence == sentence
    assert (headline.confidence_label, headline.arm, headline.control, headline.value) == (
        "decided",
        "short",
        "now",
        0.02,
    )


def test_the_headline_of_a_running_test_begins_with_so_far() -> None:
    headline = effects_headline(make_facts("learning", effects=(BETTER,)), None, None)
    assert headline.sentence == "So far: give everybody short: +0.020 (+0.010 to +0.030) against now. That is decided."


def test_an_undecided_effect_is_not_recommended() -> None:
    headline = effects_headline(make_facts(effects=(OPEN,)), None, None)
    change = "+0.010 (-0.010 to +0.030) against now; its interval holds 0"
    sentence = f"It is not decided whether long is better than now: {change}. Keep now."
    assert (headline.sentence, headline.confidence_label) == (sentence, "not known")
    assert (headline.arm, headline.compared, headline.control, headline.value) == ("now", "long", "now", 0.01)


def test_a_harm_that_is_decided_keeps_the_control() -> None:
    headline = effects_headline(make_facts(effects=(WORSE,)), None, None)
    assert headline.sentence.startswith("Keep now: no other option is better, and short changes rewards by -0.020")
    assert (headline.arm, headline.compared, headline.confidence_label, headline.value) == (
        "now",
        "short",
        "decided",
        -0.02,
    )


def test_effects_in_segments_are_counted() -> None:
    groups = (
        Effect("short", "ios", 0.1, 0.05, 0.15, "decided better"),
        Effect("short", "web", -0.1, -0.15, -0.05, "decided worse"),
        Effect("short", "tv", None, None, None, "too few people beside the noise"),
    )
    headline = effects_headline(make_facts(effects=(OPEN, *groups)), None, None)
    assert headline.sentence.endswith("Of 3 effects in segments 1 is decided better, 1 worse.")
    undecided = effects_headline(make_facts(effects=(OPEN, groups[2])), None, None)
    assert undecided.sentence.endswith("In no segment is an effect decided.")


def test_a_measured_gain_by_segment_is_the_headline() -> None:
    rule = Rule("ios", (), "short", 0.5, None, "now", 0.1, None, "decided")
    rest = Rule("everybody else", (), "now", 0.5, None, "short", 0.1, None, "not known")
    rules = Rules((rule, rest), None, ShareSource.DECLARED.sentence, ShareSource.DECLARED)
    gain = Gain("now", 0.05, 0.02, 0.08, 1000)
    headline = effects_headline(make_facts(effects=(OPEN,), gain=gain), rules, None)
    assert headline.sentence == "Choose by segment. The rules below gain +0.05 (+0.02 to +0.08) over now for everybody."
    unknown = Gain("now", 0.05, -0.02, 0.08, 1000)
    headline = effects_headline(make_facts(effects=(OPEN,), gain=unknown), rules, None)
    sentence = (
        "Choose by segment: short where ios (50% of people, declared): decided; "
        "now to everybody else (50% of people, declared): kept, as nothing is decided to be better there. "
        "Given to everybody, long changes rewards by +0.010 (-0.010 to +0.030) against now: its interval holds 0."
    )
    assert (headline.sentence, headline.confidence_label, headline.arm) == (
        sentence,
        "decided against the control",
        None,
    )


def test_sample_sizes_that_would_decide_an_effect() -> None:
    [step] = suggest_sizes(make_facts("learning", effects=(BETTER, OPEN)))
    # An interval twice as wide as the effect: four times as many people, and twice that for a power of .8.
    assert step == (
        "If long is as much better as it looks now, about 33,000 people in all decide it with probability 0.8."
    )
    tiny = Effect("long", None, 0.0001, -0.05, 0.0502, "its interval holds 0")
    [step] = suggest_sizes(make_facts(effects=(tiny,)))
    # An interval from -.05 to .05 holds effects that a few times as many people would decide.
    figures = "The estimate of long, +0.00 (-0.05 to +0.05), is so near 0 "
    assert step == figures + "that it does not tell how many people would decide it."


def test_the_best_arm_is_named_only_where_intervals_do_not_overlap() -> None:
    estimates = (Estimate("now", 0.2, 0.1, 0.3), Estimate("short", 0.6, 0.5, 0.7), Estimate("long", 0.3, 0.2, 0.4))
    headline = options_headline(make_facts(estimates=estimates))
    assert headline.confidence_label == "decided"
    assert headline.sentence.startswith("Give everybody short. It has a mean reward of 0.60 (0.50 to 0.70)")
    assert suggest_size(make_facts(estimates=estimates)) == ()
    close = (Estimate("now", 0.5, 0.4, 0.6), Estimate("short", 0.6, 0.5, 0.7))
    headline = options_headline(make_facts(estimates=close))
    opening = "Ahead is short with a mean reward of 0.60 (0.50 to 0.70), but it is not known to be better than now"
    assert headline.sentence.startswith(opening)
    assert "about 16,000 people" in suggest_size(make_facts(estimates=close))[0]


def test_headlines_of_points_and_scores_state_the_uncertainty() -> None:
    loss = (Estimate("reward lost at the average point", 0.1, 0.0, 0.2),)
    headline = point_headline(make_facts(estimates=loss), Point({"x1": 0.5}))
    assert headline.sentence == (
        "Use the point x1 = 0.5. The average point so far loses at most 0.2 of mean reward against the best one."
    )
    wide = (Estimate("reward lost at the average point", 1.0, 0.0, 3.0),)
    assert "is not known yet" in point_headline(make_facts(estimates=wide), Point({"x1": 0.5})).sentence
    coefficients = Coefficients("identity", "reward", {"x1": 0.3}, {})
    gain = Gain("now", 0.05, -0.02, 0.08, 1000)
    assert "not known to be above 0" in scores_headline(make_facts(gain=gain), coefficients).sentence
    assert "not measured" in scores_headline(make_facts(), coefficients).sentence


@pytest.mark.parametrize(
    ("radius", "decimals"), [(0.2, 2), (0.05, 2), (0.0123, 3), (12.0, 0), (3.0, 0), (float("inf"), 3)]
)
def test_figures_have_significant_decimals_alone(radius: float, decimals: int) -> None:
    assert choose_decimals(radius) == decimals


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ((0.62, -2.5, 3.74), "+0.6 (-2.5 to +3.7)"),
        ((0.05, 0.02, 0.08), "+0.05 (+0.02 to +0.08)"),
        ((0.01, -0.01, 0.03), "+0.010 (-0.010 to +0.030)"),
        ((12.4, 3.4, 21.4), "+12 (+3 to +21)"),
        ((1000.0, 600.0, 1400.0), "+1,000 (+600 to +1,400)"),
    ],
)
def test_rounding_moves_interval_ends_by_little(figures: tuple[float, float, float], words: str) -> None:
    assert format_difference(*figures) == words


def test_changed_guardrails_and_drifting_rewards_are_warnings() -> None:
    schedule = Schedule(SPEC)
    parts = (
        GuardrailEffects("refund", (BETTER, OPEN)),
        DriftTest(detected=True, evidence=4.0, false_alarm_rate=1e-3, since=5000),
    )
    answer = Answer("learning", 4000, 4, 0.95, warnings=("sample ratio: uneven",), parts=parts)
    assert conclude(schedule, schedule.open(1), answer).warnings == (
        "sample ratio: uneven",
        "short changes the guardrail refund by +0.020 (+0.010 to +0.030)",
        "rounds after the first 5,000 people contradict those before, so rewards move",
    )


def test_differences_have_signs() -> None:
    assert format_difference(-0.00001, -0.02, 0.02) == "+0.000 (-0.020 to +0.020)"


def test_names_in_sentences_are_short_and_without_control_characters() -> None:
    assert shorten("a\x1b[2J\u202eb") == "a?[2J?b"
    assert len(shorten("x" * 300)) == 60


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"model": "none"}, "Nothing was promised"),
        ({"model": "local", "epsilon": 2.0}, "epsilon 2 against everybody together"),
        ({"model": "shuffle", "epsilon": 1.0, "delta": 1e-6}, "epsilon 1 and delta 1e-06 against the server"),
    ],
)
def test_the_cost_in_privacy_is_one_sentence(model: dict[str, Any], says: str) -> None:
    cost = describe_privacy_cost(make_spec({"privacy": model}))
    assert says in cost.sentence
    assert cost.sentence.count(". ") == 0


def test_the_cost_in_privacy_has_the_epsilon_of_each_tier() -> None:
    tiers = [{"name": "generous", "epsilon": 4.0, "share": 0.5}]
    cost = describe_privacy_cost(make_spec({"privacy": {"model": "local", "epsilon": 1.0, "tiers": tiers}}))
    assert (cost.epsilon, cost.tiers) == (1.0, {"generous": 4.0})
    assert "epsilon 1, or 4 if they chose 'generous'," in cost.sentence


@pytest.mark.parametrize(
    ("baseline", "missing"),
    [(None, "has no interval"), ((0.02, -0.01, 0.05), "may be 0 or less"), ((0.2, 0.1, 0.3), "")],
)
def test_relative_effects_need_a_control_mean_above_0(baseline, missing):
    """A cell of the table is empty where its cause is named, and nowhere else."""
    mean = None if baseline is None else Estimate("now", *baseline)
    for effects in ((BETTER,), (BETTER, msgspec.structs.replace(BETTER, group="sex=f"))):
        cause = explain_no_relative(effects, mean) or ""
        about = Headline("nothing yet", "Nothing.", "not known")
        cost, unit = PrivacyCost("none", None, 0.0, "None."), RewardUnit(0.0, 1.0, "Yes or no.")
        concluded = Conclusion(about, 1, 1, unit, cost, baseline=mean)
        is_empty = [concluded.relative(effect) is None for effect in effects]
        assert missing in cause
        assert bool(cause) == any(is_empty)
        assert is_empty[0] == bool(missing)
        assert ("segments" in cause) == (any(is_empty) and not all(is_empty))


def test_an_interval_end_near_0_is_not_rounded_to_0() -> None:
    """Planted: "-0.06 (-0.11 to +0.00). That is decided." of an interval that leaves 0 out."""
    assert format_difference(-0.05604, -0.11, -0.001839) == "-0.056 (-0.110 to -0.002)"
    assert format_difference(0.5, 0.0, 1.0) == "+0.5 (+0.0 to +1.0)"
