"""Headlines say what is known, name the control and the interval, and name no option as better where that is open."""

from typing import Any

import msgspec
import pytest

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion, Headline, PrivacyCost, RewardUnit, Rule, Rules
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.measured_rate import MeasuredRate
from privateer_core.answer.parts import Contradiction, Gain, GuardrailEffects
from privateer_core.answer.policy_view import Coefficients, Point
from privateer_core.answer.shares import ShareSource
from privateer_server.conclusions.by_effects import baseline_of, effects_headline, effects_surer, no_relative
from privateer_server.conclusions.by_estimates import (
    options_headline,
    options_surer,
    point_headline,
    scores_headline,
)
from privateer_server.conclusions.conclusion import conclude
from privateer_server.conclusions.rule_words import short
from privateer_server.conclusions.wording import LearnedAnswer, decimals_of, privacy_of, signed
from privateer_server.rounds.loop import Schedule
from tests.support.specs import make_spec

SPEC = make_spec({"experiment.arms": ["now", "short", "long"]})


def learned(status: Any = "ended", **found: Any) -> LearnedAnswer:
    return LearnedAnswer(SPEC, Answer(status, 4000, 4, 0.95, **found))


BETTER = Effect("short", None, 0.02, 0.01, 0.03, "decided better")
WORSE = Effect("short", None, -0.02, -0.03, -0.01, "decided worse")
OPEN = Effect("long", None, 0.01, -0.01, 0.03, "its interval holds 0")


def test_a_decided_effect_is_named_with_control_interval_and_lift() -> None:
    baseline = baseline_of(SPEC, MeasuredRate(0.2, 0.19, 0.21))
    found = effects_headline(learned(effects=(BETTER, OPEN)), None, baseline)
    said = (
        "Give everybody short: +0.020 (+0.010 to +0.030) against now's mean of 0.200, which is +10%. That is decided."
    )
    assert found.sentence == said
    assert (found.sureness, found.option, found.control, found.value) == ("decided", "short", "now", 0.02)


def test_a_running_test_says_so_far() -> None:
    found = effects_headline(learned("learning", effects=(BETTER,)), None, None)
    assert found.sentence == "So far: give everybody short: +0.020 (+0.010 to +0.030) against now. That is decided."


def test_an_open_effect_is_not_recommended_and_says_why() -> None:
    found = effects_headline(learned(effects=(OPEN,)), None, None)
    change = "+0.010 (-0.010 to +0.030) against now; its interval holds 0"
    said = f"It is not decided whether long is better than now: {change}. Keep now."
    assert (found.sentence, found.sureness) == (said, "not known")
    assert (found.option, found.compared, found.control, found.value) == ("now", "long", "now", 0.01)


def test_a_harm_that_is_decided_keeps_the_control() -> None:
    found = effects_headline(learned(effects=(WORSE,)), None, None)
    assert found.sentence.startswith("Keep now: no other option is better, and short changes rewards by -0.020")
    assert (found.option, found.compared, found.sureness, found.value) == ("now", "short", "decided", -0.02)


def test_effects_in_segments_are_counted() -> None:
    groups = (
        Effect("short", "ios", 0.1, 0.05, 0.15, "decided better"),
        Effect("short", "web", -0.1, -0.15, -0.05, "decided worse"),
        Effect("short", "tv", None, None, None, "too few people beside the noise"),
    )
    found = effects_headline(learned(effects=(OPEN, *groups)), None, None)
    assert found.sentence.endswith("Of 3 effects in segments 1 is decided better, 1 worse.")
    nothing = effects_headline(learned(effects=(OPEN, groups[2])), None, None)
    assert nothing.sentence.endswith("In no segment is an effect decided.")


def test_a_measured_gain_by_segment_is_the_headline() -> None:
    rule = Rule("ios", (), "short", 0.5, None, "now", 0.1, None, "decided")
    rest = Rule("everybody else", (), "now", 0.5, None, "short", 0.1, None, "not known")
    rules = Rules((rule, rest), None, ShareSource.DECLARED.sentence, ShareSource.DECLARED)
    gain = Gain("now", 0.05, 0.02, 0.08, 1000)
    found = effects_headline(learned(effects=(OPEN,), gain=gain), rules, None)
    assert found.sentence == "Choose by segment. The rules below gain +0.05 (+0.02 to +0.08) over now for everybody."
    unknown = Gain("now", 0.05, -0.02, 0.08, 1000)
    found = effects_headline(learned(effects=(OPEN,), gain=unknown), rules, None)
    said = (
        "Choose by segment: short where ios (50% of people, declared): decided; "
        "now to everybody else (50% of people, declared): kept, as nothing is decided to be better there. "
        "Given to everybody, long changes rewards by +0.010 (-0.010 to +0.030) against now: its interval holds 0."
    )
    assert (found.sentence, found.sureness, found.option) == (said, "decided against the control", None)


def test_what_would_decide_an_effect() -> None:
    [said] = effects_surer(learned("learning", effects=(BETTER, OPEN)))
    # An interval twice as wide as the effect: four times as many people, and twice that for a power of .8.
    assert said == (
        "If long is as much better as it looks now, about 33,000 people in all decide it with probability 0.8."
    )
    tiny = Effect("long", None, 0.0001, -0.05, 0.0502, "its interval holds 0")
    [said] = effects_surer(learned(effects=(tiny,)))
    # An interval from -.05 to .05 holds effects that a few times as many people would decide.
    figures = "The estimate of long, +0.00 (-0.05 to +0.05), is so near 0 "
    assert said == figures + "that it does not tell how many people would decide it."


def test_the_best_option_is_named_only_where_it_is_apart() -> None:
    apart = (Estimate("now", 0.2, 0.1, 0.3), Estimate("short", 0.6, 0.5, 0.7), Estimate("long", 0.3, 0.2, 0.4))
    found = options_headline(learned(estimates=apart))
    assert found.sureness == "decided"
    assert found.sentence.startswith("Give everybody short. It has a mean reward of 0.60 (0.50 to 0.70)")
    assert options_surer(learned(estimates=apart)) == ()
    close = (Estimate("now", 0.5, 0.4, 0.6), Estimate("short", 0.6, 0.5, 0.7))
    found = options_headline(learned(estimates=close))
    said = "Ahead is short with a mean reward of 0.60 (0.50 to 0.70), but it is not known to be better than now"
    assert found.sentence.startswith(said)
    assert "about 16,000 people" in options_surer(learned(estimates=close))[0]


def test_points_and_scores_say_what_is_not_known() -> None:
    lost = (Estimate("reward lost at the average point", 0.1, 0.0, 0.2),)
    found = point_headline(learned(estimates=lost), Point({"x1": 0.5}))
    assert found.sentence == (
        "Use the point x1 = 0.5. The average point so far loses at most 0.2 of mean reward against the best one."
    )
    wide = (Estimate("reward lost at the average point", 1.0, 0.0, 3.0),)
    assert "is not known yet" in point_headline(learned(estimates=wide), Point({"x1": 0.5})).sentence
    shown = Coefficients("identity", "reward", {"x1": 0.3}, {})
    gain = Gain("now", 0.05, -0.02, 0.08, 1000)
    assert "not known to be above 0" in scores_headline(learned(gain=gain), shown).sentence
    assert "not measured" in scores_headline(learned(), shown).sentence


@pytest.mark.parametrize(
    ("radius", "decimals"), [(0.2, 2), (0.05, 2), (0.0123, 3), (12.0, 0), (3.0, 0), (float("inf"), 3)]
)
def test_figures_have_the_decimals_that_say_something(radius: float, decimals: int) -> None:
    assert decimals_of(radius) == decimals


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
def test_rounding_moves_no_end_by_a_tenth_of_half_an_interval(figures: tuple[float, float, float], words: str) -> None:
    assert signed(*figures) == words


def test_guardrails_that_change_and_rewards_that_move_are_warnings() -> None:
    schedule = Schedule(SPEC)
    parts = (
        GuardrailEffects("refund", (BETTER, OPEN)),
        Contradiction(found=True, evidence=4.0, false_alarm_rate=1e-3, since=5000),
    )
    answer = Answer("learning", 4000, 4, 0.95, warnings=("sample ratio: uneven",), parts=parts)
    assert conclude(schedule, schedule.open(1), answer).warnings == (
        "sample ratio: uneven",
        "short changes the guardrail refund by +0.020 (+0.010 to +0.030)",
        "rounds after the first 5,000 people contradict those before, so rewards move",
    )


def test_differences_have_signs() -> None:
    assert signed(-0.00001, -0.02, 0.02) == "+0.000 (-0.020 to +0.020)"


def test_names_in_sentences_are_short_and_control_nothing() -> None:
    assert short("a\x1b[2J\u202eb") == "a?[2J?b"
    assert len(short("x" * 300)) == 60


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"model": "none"}, "Nothing was promised"),
        ({"model": "local", "epsilon": 2.0}, "epsilon 2 against everybody together"),
        ({"model": "shuffle", "epsilon": 1.0, "delta": 1e-6}, "epsilon 1 and delta 1e-06 against the server"),
    ],
)
def test_the_cost_in_privacy_is_one_sentence(model: dict[str, Any], says: str) -> None:
    found = privacy_of(make_spec({"privacy": model}))
    assert says in found.sentence
    assert found.sentence.count(". ") == 0


@pytest.mark.parametrize(
    ("baseline", "missing"),
    [(None, "has no interval"), ((0.02, -0.01, 0.05), "may be 0 or less"), ((0.2, 0.1, 0.3), "")],
)
def test_a_share_of_the_controls_mean_is_told_where_it_is_above_0(
    baseline: tuple[float, float, float] | None, missing: str
) -> None:
    """A cell of the table is empty where its cause is named, and nowhere else."""
    mean = None if baseline is None else Estimate("now", *baseline)
    for effects in ((BETTER,), (BETTER, msgspec.structs.replace(BETTER, group="sex=f"))):
        cause = no_relative(effects, mean) or ""
        about = Headline("nothing yet", "Nothing.", "not known")
        cost, unit = PrivacyCost("none", None, 0.0, "None."), RewardUnit(0.0, 1.0, "Yes or no.")
        concluded = Conclusion(about, 1, 1, unit, cost, baseline=mean)
        is_empty = [concluded.relative(one) is None for one in effects]
        assert missing in cause
        assert bool(cause) == any(is_empty)
        assert is_empty[0] == bool(missing)
        assert ("segments" in cause) == (any(is_empty) and not all(is_empty))


def test_an_end_beside_0_is_not_written_as_0() -> None:
    """Planted: "-0.06 (-0.11 to +0.00). That is decided." of an interval that leaves 0 out."""
    assert signed(-0.05604, -0.11, -0.001839) == "-0.056 (-0.110 to -0.002)"
    assert signed(0.5, 0.0, 1.0) == "+0.5 (+0.0 to +1.0)"
