"""A conclusion as sentences and titled rows, in the order in which every face shows them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from privateer_core.answer.conclusion import Conclusion, PublishedAnswer, Rule, Rules
from privateer_core.answer.estimates import Effect
from privateer_core.answer.parts import LOSS, Loss
from privateer_lab.answer_tables import Row, Titled, said
from privateer_lab.answer_words import ranked
from privateer_lab.figures import whole_percent

_NEARLY: Final = 0.9999
_SMALL_LOSS: Final = 1e-4
"""Share of what rewards can differ by, below which losses are not told apart."""
_ALIKE: Final = 8
"""Segments of which the same is said that have a row each."""
ROWS_MAX: Final = 40
"""Rows of a table that people see; machines get all."""


def tables_of_conclusion(conclusion: Conclusion, effects: str = "effects") -> list[Titled]:
    """Return the tables of a conclusion: rules, what they gain, effects, what they may cost, and mean rewards.

    ``effects`` says what effects are, where that is not how much higher rewards are.
    """
    decided = (*_effects(conclusion, effects), *_losses(conclusion))
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
        "relative": f"{gain.value / constant:+.1%}" if constant is not None and constant > 0 else None,
        "interval": _interval(gain.low, gain.high),
    }
    over = "" if policy is not None else f" over {gain.option} for everybody"
    if chance := conclusion.over_chance:
        how += f"; above any option by chance {_signed(chance.value)} ({_interval(chance.low, chance.high)})"
    yield Titled(f"what choosing by context gains{over}, in mean reward: {how}", said([row]))


def _effects(conclusion: Conclusion, effects: str) -> Iterator[Titled]:
    if not conclusion.effects:
        return
    baseline, control = conclusion.baseline, conclusion.control
    rows = _effect_rows(conclusion)
    shown = rows[:ROWS_MAX]
    mean = f", whose mean reward is about {baseline.value:.3g}" if baseline else ""
    if conclusion.no_relative:
        mean += f"; {conclusion.no_relative}"
    holding = _holding(conclusion, "each interval holds")
    yield Titled(f"{effects} against {control}{mean}{holding}{_left_out(len(rows), len(shown))}", said(shown))


def _effect_rows(conclusion: Conclusion) -> list[Row]:
    """Return a row for each effect; one for many segments of which the same keeps an option from being decided."""
    effects = ranked(conclusion.effects)
    of_segments = Counter(_open_segment(one) for one in effects)
    rows: dict[tuple[str, str] | int, Row] = {}
    for place, one in enumerate(effects):
        key = _open_segment(one)
        if key is None or of_segments[key] <= _ALIKE:
            rows[place] = _effect(one, conclusion)
        elif key not in rows:
            alike = [other for other in effects if _open_segment(other) == key]
            rows[key] = _effect(one, conclusion) | {"for": f"{len(alike):,} segments", "interval": None}
            rows[key]["effect"] = _interval(*_ends([other.value for other in alike if other.value is not None]))
    return list(rows.values())


def _open_segment(one: Effect) -> tuple[str, str] | None:
    """Return what undecided effects of segments have in common that are shown as one; None of others."""
    return None if one.group is None or one.is_decided else (one.option, one.reason)


def _ends(values: Sequence[float]) -> tuple[float | None, float | None]:
    return (min(values), max(values)) if values else (None, None)


def _effect(one: Effect, conclusion: Conclusion) -> Row:
    share = conclusion.relative(one)
    return {
        "option": one.option,
        "for": one.group or "everybody",
        "effect": None if one.value is None else _signed(one.value),
        "interval": _interval(one.low, one.high),
        "relative": None if share is None else f"{share:+.1%}",
        "decided": one.is_decided,
        "why": one.reason,
    }


def _losses(conclusion: Conclusion) -> Iterator[Titled]:
    if conclusion.losses:
        least = _SMALL_LOSS * (conclusion.reward.high - conclusion.reward.low)
        rows = _loss_rows(sorted(conclusion.losses, key=lambda one: -one.most), least)
        shown = rows[:ROWS_MAX]
        title = f"{LOSS}, in mean reward; at most while intervals hold{_left_out(len(rows), len(shown))}"
        yield Titled(title, said(shown))


def _loss_rows(losses: Sequence[Loss], least: float) -> list[Row]:
    """Return a row for each loss; one for many segments that lose the same."""
    names: dict[tuple[str, float | None, float], list[str]] = {}
    for one in losses:
        names.setdefault((one.name.partition(": ")[0], one.expected, one.most), []).append(one.name)
    return [
        {"who gets": name, "loses, expected": _loss(expected, least), "at most": _loss(most, least)}
        for (option, expected, most), alike in names.items()
        for name in (alike if len(alike) <= _ALIKE else [f"{option}: {len(alike):,} segments"])
    ]


def _loss(value: float | None, least: float) -> float | str | None:
    """Return a loss, or words for one that is hardly anything."""
    return f"below {least:.1g}" if value and value < least else value


def _interval(low: float | None, high: float | None) -> str | None:
    if low is None and high is None:
        return None
    return " to ".join("no end" if end is None else _signed(end) for end in (low, high))


def _holding(conclusion: Conclusion, which: str) -> str:
    """Say with which probability intervals hold, each by itself or all together."""
    sure = conclusion.confidence
    if sure is None:
        return ""
    return f"; {which} with {'above 99.99' if sure >= _NEARLY else f'{100 * sure:g}'} %"


def _estimates(conclusion: Conclusion) -> Iterator[Titled]:
    if not conclusion.estimates:
        return
    best = sorted(conclusion.estimates, key=lambda one: -one.value)
    shown = best[:ROWS_MAX]
    rows = [
        {"option": one.name, "mean reward": one.value, "interval": f"{one.low:z.4g} to {one.high:z.4g}"}
        for one in shown
    ]
    yield Titled(
        f"mean rewards{_holding(conclusion, 'intervals hold together')}{_left_out(len(best), len(shown))}", rows
    )


def _left_out(all_: int, shown: int) -> str:
    return "" if all_ == shown else f"; {all_ - shown:,} more of {all_:,} with --json"
