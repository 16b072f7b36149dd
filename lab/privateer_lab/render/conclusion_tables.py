"""Tables and sentences of a conclusion, in display order, for terminals, pages and Markdown."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from privateer_core.answer.conclusion import Conclusion, PublishedAnswer, Rule, Rules
from privateer_core.answer.estimates import Effect
from privateer_core.answer.parts import LOSS, Loss
from privateer_core.errors import printable
from privateer_lab.render.figures import format_figure
from privateer_lab.render.tables import Row, TitledTable, answer_tables, drop_empty, estimate_rows, shape_tables
from privateer_lab.render.words import describe_conclusion, rank_effects, whole_percent

_MAX_PRINTED_CONFIDENCE: Final = 0.9999
_MIN_PRINTED_LOSS_SHARE: Final = 1e-4
"""Least loss that is printed as a figure, as a share of the range of rewards."""
_MAX_EQUAL_SEGMENTS: Final = 8
"""Largest number of segments with equal cells that have a row each."""
MAX_ROWS: Final = 40
"""Largest number of rows of a printed table; JSON has all rows."""


def list_conclusion_tables(conclusion: Conclusion, effects: str = "effects") -> list[TitledTable]:
    """Return a conclusion's tables: rules, gain, ``effects`` (their noun in titles), expected losses, mean rewards."""
    decided = (*_effects_table(conclusion, effects), *_losses_table(conclusion))
    return [*_rules_table(conclusion), *_gain_table(conclusion), *decided, *_estimates_table(conclusion)]


def conclusion_notes(published: PublishedAnswer) -> list[str]:
    """Return the sentences after the tables: how to become surer, the data, the privacy cost and the reward."""
    conclusion = published.conclusion
    basis = [describe_basis(published)]
    if conclusion.rules:
        basis.append(conclusion.rules.people)
    return [*conclusion.next_steps, *basis, conclusion.privacy.sentence, conclusion.reward.sentence]


def describe_basis(published: PublishedAnswer) -> str:
    """Return a sentence with the number of participants, the start and the status of an experiment."""
    conclusion = published.conclusion
    account = published.people
    n_people = (account.counted if account else 0) if conclusion.people is None else conclusion.people
    rounds_clause = f" in {conclusion.rounds:,} rounds" if conclusion.rounds else ""
    start = f", begun {format_day(published.began)}" if published.began else ""
    status = f"the experiment is {published.status}{start}"
    return f"It rests on {n_people:,} people{rounds_clause}; {status}.{f' {account.sentence}' if account else ''}"


def format_day(text: str) -> str:
    """Format the day of a time, in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d")


def rule_rows(rules: Rules) -> list[Row]:
    """Return a row for each rule, in order."""
    return drop_empty([_rule_row(rule) for rule in rules.rules])


def describe_kept_gain(rules: Rules) -> str:
    """Return a clause with the share of the policy's gain that its rules keep."""
    subject = "the rule has" if len(rules.rules) == 1 else f"these {len(rules.rules)} rules have"
    return "" if rules.gain_kept is None else f"{subject} {rules.gain_kept:.0%} of the gain of the whole policy"


def _rules_table(conclusion: Conclusion) -> Iterator[TitledTable]:
    """Make the table of who should get what, if there are rules."""
    if conclusion.rules:
        title = _rules_title(conclusion)
        kept_gain = describe_kept_gain(conclusion.rules)
        order_note = "; the first that applies decides" if len(conclusion.rules.rules) > 1 else ""
        yield TitledTable(f"{title}{order_note}{f' ({kept_gain})' if kept_gain else ''}", rule_rows(conclusion.rules))


def _rules_title(conclusion: Conclusion) -> str:
    """Title the table of rules by how sure the conclusion is."""
    headline, rules = conclusion.headline, conclusion.rules
    if headline.confidence_label == "not known":
        return "what each gets at the end, which is not known to be best"
    if headline.finding == "one arm" and rules and len(rules.rules) > 1:
        return f"what each gets at the end, which is worse than {headline.arm} for everybody"
    return "who should get what"


def _rule_row(rule: Rule) -> Row:
    """Build a rule's row: people, option, confidence_label, and mean reward beside the next best option's."""
    label = (
        "not decided"
        if rule.confidence_label == "not known" and rule.probability_best is None
        else rule.confidence_label
    )
    confidence = f"{whole_percent(rule.probability_best)}, {label}" if rule.probability_best is not None else label
    return {
        "who": rule.people,
        "gets": rule.arm,
        "how sure": confidence,
        "people": whole_percent(rule.share),
        "mean reward": rule.mean,
        "next best": rule.next_best,
        "ahead by": None if rule.difference is None else _format_signed(rule.difference),
    }


def _format_signed(value: float) -> str:
    return f"{value:+z.4g}"


def _gain_table(conclusion: Conclusion) -> Iterator[TitledTable]:
    """Make the table of what choosing by context gains, if that is known."""
    gain = conclusion.gain
    if gain is None or gain.value is None:
        return
    policy, constant = conclusion.means or (None, None)
    basis = "expected by the model and not measured, with its own interval of 95 %"
    if conclusion.is_measured:
        basis = "measured with people who got one or the other"
    row = {
        "by context": policy,
        f"{gain.arm} for everybody": constant,
        "gain": _format_signed(gain.value),
        "relative": f"{gain.value / constant:+.1%}" if constant is not None and constant > 0 else None,
        "interval": _format_interval(gain.low, gain.high),
    }
    compared = "" if policy is not None else f" over {gain.arm} for everybody"
    if null := conclusion.over_chance:
        basis += f"; above any option by chance {_format_signed(null.value)} ({_format_interval(null.low, null.high)})"
    yield TitledTable(f"what choosing by context gains{compared}, in mean reward: {basis}", drop_empty([row]))


def _effects_table(conclusion: Conclusion, effects: str) -> Iterator[TitledTable]:
    """Make the table of effects against the control, if there are any."""
    if not conclusion.effects:
        return
    baseline, control = conclusion.baseline, conclusion.control
    rows = _effect_rows(conclusion)
    shown_rows = rows[:MAX_ROWS]
    mean = f", whose mean reward is about {baseline.value:.3g}" if baseline else ""
    if conclusion.no_relative:
        mean += f"; {conclusion.no_relative}"
    confidence = _level_clause(conclusion, "each interval holds")
    title = f"{effects} against {control}{mean}{confidence}{_omission_clause(len(rows), len(shown_rows))}"
    yield TitledTable(title, drop_empty(shown_rows))


def _effect_rows(conclusion: Conclusion) -> list[Row]:
    """Return a row for each effect; segments that are undecided for the same reason share a row if they are many."""
    effects = rank_effects(conclusion.effects)
    n_by_cell = Counter(_undecided_key(effect) for effect in effects)
    rows: dict[tuple[str, str] | int, Row] = {}
    for index, current in enumerate(effects):
        cell = _undecided_key(current)
        if cell is None or n_by_cell[cell] <= _MAX_EQUAL_SEGMENTS:
            rows[index] = _effect_row(current, conclusion)
        elif cell not in rows:
            similar = [other for other in effects if _undecided_key(other) == cell]
            rows[cell] = _effect_row(current, conclusion) | {"for": f"{len(similar):,} segments", "interval": None}
            values = [other.value for other in similar if other.value is not None]
            rows[cell]["effect"] = _format_interval(min(values, default=None), max(values, default=None))
    return list(rows.values())


def _undecided_key(effect: Effect) -> tuple[str, str] | None:
    """Return the option and reason by which undecided effects of segments share a row; None for other effects."""
    return None if effect.group is None or effect.is_decided else (effect.arm, effect.reason)


def _effect_row(effect: Effect, conclusion: Conclusion) -> Row:
    """Build an effect's row, absolute and relative."""
    relative = conclusion.relative(effect)
    return {
        "option": effect.arm,
        "for": effect.group or "everybody",
        "effect": None if effect.value is None else _format_signed(effect.value),
        "interval": _format_interval(effect.low, effect.high),
        "relative": None if relative is None else f"{relative:+.1%}",
        "decided": effect.is_decided,
        "why": effect.reason,
    }


def _losses_table(conclusion: Conclusion) -> Iterator[TitledTable]:
    """Make the table of what groups may lose, greatest first, if there are any."""
    if conclusion.expected_losses:
        min_printed = _MIN_PRINTED_LOSS_SHARE * (conclusion.reward.high - conclusion.reward.low)
        rows = _loss_rows(sorted(conclusion.expected_losses, key=lambda loss: -loss.most), min_printed)
        shown_rows = rows[:MAX_ROWS]
        title = f"{LOSS}, in mean reward; at most while intervals hold{_omission_clause(len(rows), len(shown_rows))}"
        yield TitledTable(title, drop_empty(shown_rows))


def _loss_rows(losses: Sequence[Loss], min_loss: float) -> list[Row]:
    """Return a row for each loss; segments with equal losses share a row if they are many."""
    names: dict[tuple[str, float | None, float], list[str]] = {}
    for loss in losses:
        names.setdefault((loss.name.partition(": ")[0], loss.expected, loss.most), []).append(loss.name)
    return [
        {
            "who gets": name,
            "loses, expected": _format_loss(expected, min_loss),
            "at most": _format_loss(max_loss, min_loss),
        }
        for (option, expected, max_loss), equal in names.items()
        for name in (equal if len(equal) <= _MAX_EQUAL_SEGMENTS else [f"{option}: {len(equal):,} segments"])
    ]


def _format_loss(value: float | None, min_printed: float) -> float | str | None:
    """Return a loss, or a text with an upper bound if it is too small to print."""
    return f"below {min_printed:.1g}" if value and value < min_printed else value


def _format_interval(low: float | None, high: float | None) -> str | None:
    if low is None and high is None:
        return None
    return " to ".join("no end" if end is None else _format_signed(end) for end in (low, high))


def _level_clause(conclusion: Conclusion, subject: str) -> str:
    """Return a clause with the confidence level of intervals, each by itself or all together."""
    confidence = conclusion.confidence
    if confidence is None:
        return ""
    return f"; {subject} with {'above 99.99' if confidence >= _MAX_PRINTED_CONFIDENCE else f'{100 * confidence:g}'} %"


def _estimates_table(conclusion: Conclusion) -> Iterator[TitledTable]:
    """Make the table of mean rewards, highest first, if there are any."""
    if not conclusion.estimates:
        return
    ranked = sorted(conclusion.estimates, key=lambda mean: -mean.value)
    top = ranked[:MAX_ROWS]
    rows = [
        {"option": mean.name, "mean reward": mean.value, "interval": f"{mean.low:z.4g} to {mean.high:z.4g}"}
        for mean in top
    ]
    confidence = _level_clause(conclusion, "intervals hold together")
    yield TitledTable(f"mean rewards{confidence}{_omission_clause(len(ranked), len(top))}", rows)


def _omission_clause(n_rows: int, n_shown: int) -> str:
    return "" if n_rows == n_shown else f"; {n_rows - n_shown:,} more of {n_rows:,} with --json"


_MARKDOWN_ESCAPES: Final = str.maketrans(
    {**{mark: f"\\{mark}" for mark in "\\`*_[]|~#!"}, **{mark: f"&#{ord(mark)};" for mark in "$<>&@"}}
)
"""Escapes of the characters that are Markdown, formulas, HTML or addresses."""
_LINK_PATTERN: Final = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)
"""Characters at which renderers of Markdown recognize a link."""


def escape_markdown(value: Any) -> str:
    """Format a value as text, with all Markdown escaped."""
    text = "" if value is None else printable(format_figure(value)).translate(_MARKDOWN_ESCAPES)
    return _LINK_PATTERN.sub(lambda match: f"&#{ord(match[0])};", text)


def format_markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows as a Markdown table, with a column for each key of the first row."""
    if not rows:
        return "Nothing yet."
    cells: list[Iterable[Any]] = [rows[0], *(row.values() for row in rows)]
    head, *body = ["| " + " | ".join(map(escape_markdown, row)) + " |" for row in cells]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


_CLAIM_COLUMNS: Final = ("adversary", "protects", "epsilon", "delta")
_NO_CLAIM: Final = {"epsilon": "nothing is claimed", "delta": None}


def format_markdown(published: PublishedAnswer, claims: Sequence[Mapping[str, Any]] = ()) -> str:
    """Format a result as Markdown, the headline first; with claims of its certificate, also all other tables."""
    conclusion, answer = published.conclusion, published.result
    paragraphs = [f"# {escape_markdown(published.experiment)}", f"**{escape_markdown(conclusion.headline.sentence)}**"]
    if conclusion.warnings:
        paragraphs.append("\n".join(f"- warning: {escape_markdown(warning)}" for warning in conclusion.warnings))
    if claims:
        paragraphs += [escape_markdown(sentence) for sentence in [*describe_conclusion(conclusion, answer)][1:]]
        estimates = [] if answer.effects else [TitledTable("estimates", estimate_rows(answer.estimates))]
        tables = [*estimates, *answer_tables(answer)]
    else:
        tables = [*list_conclusion_tables(conclusion), *shape_tables(answer)]
    for title, rows in tables:
        paragraphs += [f"## {escape_markdown(title[:1].upper() + title[1:])}", format_markdown_table(rows)]
    if claims:
        claim_rows = [
            {key: row[key] for key in _CLAIM_COLUMNS} | (_NO_CLAIM if row["epsilon"] is None else {}) for row in claims
        ]
        paragraphs += ["## Privacy", format_markdown_table(claim_rows)]
    paragraphs.append("\n".join(f"- {escape_markdown(note)}" for note in conclusion_notes(published)))
    return "\n\n".join(paragraphs) + "\n"
