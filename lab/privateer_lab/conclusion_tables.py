"""A conclusion as sentences and titled rows, in the order in which every face shows them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from privateer_core.answer.conclusion import Conclusion, PublishedAnswer, Rule, Rules
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.parts import LOSS
from privateer_lab.answer_tables import Row, Titled, said
from privateer_lab.answer_words import ranked
from privateer_lab.figures import whole_percent

_NEARLY: Final = 0.9999
_SMALL_LOSS: Final = 1e-4
"""Share of what rewards can differ by, below which losses are not told apart."""
ROWS_MAX: Final = 40
"""Rows of a table that people see; machines get all."""


def tables_of_conclusion(conclusion: Conclusion) -> list[Titled]:
    """Return the tables of a conclusion: rules, what they gain, effects, what they may cost, and mean rewards."""
    decided = (*_effects(conclusion), *_losses(conclusion))
    return [*_rules(conclusion), *_gain(conclusion), *decided, *_estimates(conclusion)]


def notes_of(published: PublishedAnswer) -> list[str]:
    """Return the sentences that come after the tables: what would make it surer, what it rests on, and its cost."""
    conclusion = published.conclusion
    rests = [rests_on(published)]
    if conclusion.rules:
        rests.append(conclusion.rules.people)
    return [*conclusion.surer, *rests, conclusion.privacy.sentence, conclusion.reward.sentence]


def rests_on(published: PublishedAnswer) -> str:
    """Say how many people it rests on, since when, and where it stands."""
    conclusion = published.conclusion
    account = published.people
    people = (account.counted if account else 0) if conclusion.people is None else conclusion.people
    rounds = f" in {conclusion.rounds:,} rounds" if conclusion.rounds else ""
    began = f", begun {day(published.began)}" if published.began else ""
    standing = f"the experiment is {published.status}{began}"
    return f"It rests on {people:,} people{rounds}; {standing}.{f' {account.sentence}' if account else ''}"


def day(text: str) -> str:
    """Write the day of a time."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d")


def rule_rows(rules: Rules) -> list[Row]:
    """Return a row for each rule, in order."""
    return said([_rule(one) for one in rules.rules])


def kept(rules: Rules) -> str:
    """Say how much of what the whole policy gains its rules keep."""
    count = "the rule has" if len(rules.rules) == 1 else f"these {len(rules.rules)} rules have"
    return "" if rules.gain_kept is None else f"{count} {rules.gain_kept:.0%} of the gain of the whole policy"


def _rules(conclusion: Conclusion) -> Iterator[Titled]:
    if conclusion.rules:
        title = _title(conclusion)
        more = kept(conclusion.rules)
        first = "; the first that applies decides" if len(conclusion.rules.rules) > 1 else ""
        yield Titled(f"{title}{first}{f' ({more})' if more else ''}", rule_rows(conclusion.rules))


def _title(conclusion: Conclusion) -> str:
    headline, rules = conclusion.headline, conclusion.rules
    if headline.sureness == "not known":
        return "what each gets at the end, which is not known to be best"
    if headline.finding == "one option" and rules and len(rules.rules) > 1:
        return f"what each gets at the end, which is worse than {headline.option} for everybody"
    return "who should get what"


def _rule(one: Rule) -> Row:
    sure = "not decided" if one.sureness == "not known" and one.certainty is None else one.sureness
    certain = f"{whole_percent(one.certainty)}, {sure}" if one.certainty is not None else sure
    return {
        "who": one.people,
        "gets": one.option,
        "how sure": certain,
        "people": whole_percent(one.share),
        "mean reward": one.mean,
        "next best": one.next_best,
        "ahead by": None if one.difference is None else _signed(one.difference),
    }


def _signed(value: float) -> str:
    return f"{value:+z.4g}"


def relative(value: float, baseline: float | None) -> str | None:
    """Write a difference as a share of what it is from; nothing where that is not above 0."""
    return f"{value / baseline:+.1%}" if baseline is not None and baseline > 0 else None


def _gain(conclusion: Conclusion) -> Iterator[Titled]:
    gain = conclusion.gain
    if gain is None or gain.value is None:
        return
    policy, constant = conclusion.means or (None, None)
    how = "expected by the model and not measured, with its own interval of 95 %"
    if conclusion.is_measured:
        how = "measured with people who got one or the other"
    row = {
        "by context": policy,
        f"{gain.option} for everybody": constant,
        "gain": _signed(gain.value),
        "relative": relative(gain.value, constant),
        "interval": _interval(gain.low, gain.high),
    }
    over = "" if policy is not None else f" over {gain.option} for everybody"
    if chance := conclusion.over_chance:
        how += f"; above any option by chance {_signed(chance.value)} ({_interval(chance.low, chance.high)})"
    yield Titled(f"what choosing by context gains{over}, in mean reward: {how}", said([row]))


def _effects(conclusion: Conclusion) -> Iterator[Titled]:
    if not conclusion.effects:
        return
    baseline, control = conclusion.baseline, conclusion.control
    shown = ranked(conclusion.effects)[:ROWS_MAX]
    mean = f", whose mean reward is about {baseline.value:.3g}" if baseline else ""
    sure = _holding(conclusion)
    title = f"effects against {control}{mean}{sure}{_left_out(len(conclusion.effects), len(shown))}"
    yield Titled(title, said([_effect(one, baseline) for one in shown]))


def _effect(one: Effect, baseline: Estimate | None) -> Row:
    own = baseline.value if baseline and one.group is None else None
    return {
        "option": one.option,
        "for": one.group or "everybody",
        "effect": None if one.value is None else _signed(one.value),
        "interval": _interval(one.low, one.high),
        "relative": None if one.value is None else relative(one.value, own),
        "decided": one.is_decided,
        "why": one.reason,
    }


def _losses(conclusion: Conclusion) -> Iterator[Titled]:
    if conclusion.losses:
        shown = sorted(conclusion.losses, key=lambda one: -one.most)[:ROWS_MAX]
        least = _SMALL_LOSS * (conclusion.reward.high - conclusion.reward.low)
        rows = [
            {"who gets": one.name, "loses, expected": _loss(one.expected, least), "at most": _loss(one.most, least)}
            for one in shown
        ]
        title = f"{LOSS}, in mean reward; at most while intervals hold{_left_out(len(conclusion.losses), len(shown))}"
        yield Titled(title, said(rows))


def _loss(value: float | None, least: float) -> float | str | None:
    """Return a loss, or words for one that is hardly anything."""
    return f"below {least:.1g}" if value and value < least else value


def _interval(low: float | None, high: float | None) -> str | None:
    if low is None and high is None:
        return None
    return " to ".join("no end" if end is None else _signed(end) for end in (low, high))


def _holding(conclusion: Conclusion) -> str:
    """Say with which probability intervals hold together."""
    sure = conclusion.confidence
    if sure is None:
        return ""
    return f"; intervals hold together with {'above 99.99' if sure >= _NEARLY else f'{100 * sure:g}'} %"


def _estimates(conclusion: Conclusion) -> Iterator[Titled]:
    if not conclusion.estimates:
        return
    best = sorted(conclusion.estimates, key=lambda one: -one.value)
    shown = best[:ROWS_MAX]
    rows = [
        {"option": one.name, "mean reward": one.value, "interval": f"{one.low:z.4g} to {one.high:z.4g}"}
        for one in shown
    ]
    yield Titled(f"mean rewards{_holding(conclusion)}{_left_out(len(best), len(shown))}", rows)


def _left_out(all_: int, shown: int) -> str:
    return "" if all_ == shown else f"; {all_ - shown:,} more of {all_:,} with --json"
