"""The document of an answer: headline, warnings, tables and notes, in display order, for terminals and Markdown."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion, PublishedAnswer, Rule, Rules
from privateer_core.answer.estimates import Effect
from privateer_core.answer.parts import LOSS, BinMeans, DriftTest, EffectsOverTime, FeatureSelection, Loss
from privateer_core.errors import printable
from privateer_lab.render import words
from privateer_lab.render.tables import (
    Row,
    TitledTable,
    answer_tables,
    drop_empty,
    estimate_rows,
    part_tables,
    shape_tables,
)

_MAX_PRINTED_CONFIDENCE: Final = 0.9999
_MIN_PRINTED_LOSS_SHARE: Final = 1e-4
"""Least loss that is printed as a figure, as a share of the range of rewards."""
_MAX_EQUAL_SEGMENTS: Final = 8
"""Largest number of segments with equal cells that have a row each."""
MAX_ROWS: Final = 40
"""Largest number of rows of a printed table; JSON has all rows."""


class AnswerDocument(NamedTuple):
    """What a face shows of an answer, from top to bottom."""

    headline: str
    warnings: Sequence[str]
    sentences: Sequence[str]
    tables: Sequence[TitledTable]
    notes: Sequence[str]


def write_conclusion(published: PublishedAnswer) -> AnswerDocument:
    """Write the conclusion of an experiment: headline, rules, gain or effects, and notes on data and costs."""
    conclusion = published.conclusion
    tables = [*list_conclusion_tables(conclusion), *shape_tables(published.result)]
    return AnswerDocument(
        conclusion.headline.sentence, conclusion.warnings, (), tables, _write_notes(conclusion, _write_basis(published))
    )


def write_finished(conclusion: Conclusion, answer: Answer, basis: str, effects: str = "effects") -> AnswerDocument:
    """Write the result of a finished test; ``effects`` is their noun in titles."""
    tables = list_conclusion_tables(conclusion, effects)
    notes = _write_notes(conclusion, basis)
    return AnswerDocument(conclusion.headline.sentence, answer.warnings, (), tables, notes)


def write_details(conclusion: Conclusion, answer: Answer, *, with_conclusion: bool = False) -> AnswerDocument:
    """Write the answer without the effects at every look; the tables of its conclusion, if wanted, come first."""
    headline, *sentences = words.describe_conclusion(conclusion, answer)
    confidence = (
        "" if answer.confidence is None else f"intervals of {words.format_confidence(answer.confidence)} confidence"
    )
    if answer.effects and confidence:
        sentences.append(f"What follows has {confidence}.")
    sentences += [words.format_drift(part) for part in answer.all_of(DriftTest)]
    sentences += [words.describe_feature_selection(part) for part in answer.all_of(FeatureSelection)]
    tables = list_conclusion_tables(conclusion) if with_conclusion else []
    if answer.estimates and not answer.effects and not (with_conclusion and conclusion.estimates):
        title = f"estimates, with {confidence}" if confidence else "estimates"
        tables.append(TitledTable(title, estimate_rows(answer.estimates)))
    in_words = DriftTest | FeatureSelection | EffectsOverTime | BinMeans
    rest = msgspec.structs.replace(answer, parts=tuple(part for part in answer.parts if not isinstance(part, in_words)))
    tables += answer_tables(msgspec.structs.replace(rest, effects=(), gain=None) if with_conclusion else rest)
    tables += [_cut_table(*table) for means in answer.all_of(BinMeans) for table in part_tables(means)]
    tables = [table._replace(rows=sorted(table.rows, key=lambda row: row.get("decided") is False)) for table in tables]
    return AnswerDocument(headline, answer.warnings, sentences, tables, ())


def _write_notes(conclusion: Conclusion, basis: str) -> list[str]:
    """Write how to become surer, the data, the privacy cost and the reward."""
    coverage = [conclusion.rules.people] if conclusion.rules else []
    return [*conclusion.next_steps, basis, *coverage, conclusion.privacy.sentence, conclusion.reward.sentence]


def _write_basis(published: PublishedAnswer) -> str:
    """Write a sentence with the number of participants, the start and the status of an experiment."""
    conclusion, account = published.conclusion, published.people
    n_people = (account.counted if account else 0) if conclusion.people is None else conclusion.people
    rounds = f" in {conclusion.rounds:,} rounds" if conclusion.rounds else ""
    start = f", begun {datetime.fromisoformat(published.began).astimezone(UTC):%Y-%m-%d}" if published.began else ""
    status = f"the experiment is {published.status}{start}"
    return f"It rests on {n_people:,} people{rounds}; {status}.{f' {account.sentence}' if account else ''}"


def list_conclusion_tables(conclusion: Conclusion, effects: str = "effects") -> list[TitledTable]:
    """Return a conclusion's tables: rules, gain, ``effects`` (their noun in titles), expected losses, mean rewards."""
    tables = (
        _make_rules_table(conclusion),
        _make_gain_table(conclusion),
        _make_effects_table(conclusion, effects),
        _make_losses_table(conclusion),
        _make_estimates_table(conclusion),
    )
    return [table for table in tables if table]


def _cut_table(title: str, rows: Sequence[Row]) -> TitledTable:
    """Make a table of the first rows; its title says how many are left out."""
    top_rows = rows[:MAX_ROWS]
    omitted = "" if len(top_rows) == len(rows) else f"; {len(rows) - len(top_rows):,} more of {len(rows):,} with --json"
    return TitledTable(title + omitted, drop_empty(top_rows))


def _make_rules_table(conclusion: Conclusion) -> TitledTable | None:
    """Make the table of who should get what, if there are rules; its title says how sure that is."""
    rules, headline = conclusion.rules, conclusion.headline
    if not rules:
        return None
    title = "who should get what"
    if headline.confidence_label == "not known":
        title = "what each gets at the end, which is not known to be best"
    elif headline.finding == "one arm" and len(rules.rules) > 1:
        title = f"what each gets at the end, which is worse than {headline.arm} for everybody"
    order = "; the first that applies decides" if len(rules.rules) > 1 else ""
    subject = "the rule has" if len(rules.rules) == 1 else f"these {len(rules.rules)} rules have"
    share = rules.gain_kept
    gain_note = "" if share is None else f" ({subject} {share:.0%} of the gain of the whole policy)"
    return TitledTable(title + order + gain_note, rule_rows(rules))


def rule_rows(rules: Rules) -> list[Row]:
    """Return a row for each rule, in order: people, option, confidence, and mean reward beside the next best's."""
    return drop_empty(
        [
            {
                "who": rule.people,
                "gets": rule.arm,
                "how sure": _describe_confidence(rule),
                "people": words.whole_percent(rule.share),
                "mean reward": rule.mean,
                "next best": rule.next_best,
                "ahead by": _format_signed(rule.difference),
            }
            for rule in rules.rules
        ]
    )


def _describe_confidence(rule: Rule) -> str:
    if rule.probability_best is None:
        return "not decided" if rule.confidence_label == "not known" else rule.confidence_label
    return f"{words.whole_percent(rule.probability_best)}, {rule.confidence_label}"


def _format_signed(value: float | None) -> str | None:
    return None if value is None else f"{value:+z.4g}"


def _format_interval(low: float | None, high: float | None) -> str | None:
    if low is None and high is None:
        return None
    return f"{_format_signed(low) or 'no end'} to {_format_signed(high) or 'no end'}"


def _make_gain_table(conclusion: Conclusion) -> TitledTable | None:
    """Say in the title whether the gain was measured, and how far it is above chance."""
    gain = conclusion.gain
    if gain is None or gain.value is None:
        return None
    policy, constant = conclusion.means or (None, None)
    basis = "expected by the model and not measured, with its own interval of 95 %"
    if conclusion.is_measured:
        basis = "measured with people who got one or the other"
    if null := conclusion.over_chance:
        basis += f"; above any option by chance {_format_signed(null.value)} ({_format_interval(null.low, null.high)})"
    row = {
        "by context": policy,
        f"{gain.arm} for everybody": constant,
        "gain": _format_signed(gain.value),
        "relative": f"{gain.value / constant:+.1%}" if constant is not None and constant > 0 else None,
        "interval": _format_interval(gain.low, gain.high),
    }
    compared = "" if policy is not None else f" over {gain.arm} for everybody"
    return TitledTable(f"what choosing by context gains{compared}, in mean reward: {basis}", drop_empty([row]))


def _make_effects_table(conclusion: Conclusion, effects: str) -> TitledTable | None:
    """Title effects by the control and its mean; a long table is cut."""
    if not conclusion.effects:
        return None
    baseline = conclusion.baseline
    mean = f", whose mean reward is about {baseline.value:.3g}" if baseline else ""
    no_relative = f"; {conclusion.no_relative}" if conclusion.no_relative else ""
    level = _describe_level(conclusion, "each interval holds")
    return _cut_table(f"{effects} against {conclusion.control}{mean}{no_relative}{level}", _effect_rows(conclusion))


def _effect_rows(conclusion: Conclusion) -> list[Row]:
    """Return a row for each effect; segments that are undecided for the same reason share a row if they are many."""
    effects, rows = words.rank_effects(conclusion.effects), []
    similar: dict[tuple[str, str], list[Effect]] = {}
    for effect in effects:
        if effect.group is not None and not effect.is_decided:
            similar.setdefault((effect.arm, effect.reason), []).append(effect)
    for effect in effects:
        equal = [effect] if effect.is_decided else similar.get((effect.arm, effect.reason), [effect])
        row = _effect_row(effect, conclusion)
        if effect.group is None or len(equal) <= _MAX_EQUAL_SEGMENTS:
            rows.append(row)
        elif effect is equal[0]:
            values = [other.value for other in equal if other.value is not None]
            span = _format_interval(min(values, default=None), max(values, default=None))
            rows.append(row | {"for": f"{len(equal):,} segments", "effect": span, "interval": None})
    return rows


def _effect_row(effect: Effect, conclusion: Conclusion) -> Row:
    """Write an absolute figure beside the relative one, where the control's mean allows that."""
    relative = conclusion.relative(effect)
    return {
        "option": effect.arm,
        "for": effect.group or "everybody",
        "effect": _format_signed(effect.value),
        "interval": _format_interval(effect.low, effect.high),
        "relative": None if relative is None else f"{relative:+.1%}",
        "decided": effect.is_decided,
        "why": effect.reason,
    }


def _make_losses_table(conclusion: Conclusion) -> TitledTable | None:
    """Make the table of what groups may lose, greatest first; segments with equal losses share a row if many."""
    min_printed = _MIN_PRINTED_LOSS_SHARE * (conclusion.reward.high - conclusion.reward.low)
    losses: dict[tuple[str, float | None, float], list[Loss]] = {}
    for loss in sorted(conclusion.expected_losses, key=lambda loss: -loss.most):
        losses.setdefault((loss.name.partition(": ")[0], loss.expected, loss.most), []).append(loss)
    rows = [
        {
            "who gets": name,
            "loses, expected": _format_loss(expected, min_printed),
            "at most": _format_loss(max_loss, min_printed),
        }
        for (option, expected, max_loss), equal in losses.items()
        for name in (
            [loss.name for loss in equal]
            if len(equal) <= _MAX_EQUAL_SEGMENTS
            else [f"{option}: {len(equal):,} segments"]
        )
    ]
    return _cut_table(f"{LOSS}, in mean reward; at most while intervals hold", rows) if rows else None


def _format_loss(value: float | None, min_printed: float) -> float | str | None:
    """Return a loss, or a text with an upper bound if it is too small to print."""
    return f"below {min_printed:.1g}" if value and value < min_printed else value


def _describe_level(conclusion: Conclusion, subject: str) -> str:
    """Return a clause with the confidence level of intervals, each by itself or all together."""
    confidence = conclusion.confidence
    if confidence is None:
        return ""
    return f"; {subject} with {'above 99.99' if confidence >= _MAX_PRINTED_CONFIDENCE else f'{100 * confidence:g}'} %"


def _make_estimates_table(conclusion: Conclusion) -> TitledTable | None:
    """Sort options by their means, highest first; a long table is cut."""
    rows = [
        {"option": mean.name, "mean reward": mean.value, "interval": f"{mean.low:z.4g} to {mean.high:z.4g}"}
        for mean in sorted(conclusion.estimates, key=lambda mean: -mean.value)
    ]
    return _cut_table(f"mean rewards{_describe_level(conclusion, 'intervals hold together')}", rows) if rows else None


_MARKDOWN_ESCAPES: Final = str.maketrans(
    {**{mark: f"\\{mark}" for mark in "\\`*_[]|~#!"}, **{mark: f"&#{ord(mark)};" for mark in "$<>&@"}}
)
"""Escapes of the characters that are Markdown, formulas, HTML or addresses."""
_LINK_PATTERN: Final = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)
"""Characters at which renderers of Markdown recognize a link."""


def escape_markdown(value: Any) -> str:
    """Format a value as text, with all Markdown escaped."""
    text = printable(words.format_figure(value)).translate(_MARKDOWN_ESCAPES)
    return _LINK_PATTERN.sub(lambda match: f"&#{ord(match[0])};", text)


def _format_markdown_table(table: TitledTable) -> str:
    """Format a table as Markdown, under its title."""
    title = f"## {escape_markdown(table.title[:1].upper() + table.title[1:])}"
    if not table.rows:
        return f"{title}\n\nNothing yet."
    head, *body = ["| " + " | ".join(map(escape_markdown, row)) + " |" for row in (table.columns, *table.cells())]
    return "\n".join([f"{title}\n", head, "|" + "---|" * len(table.columns), *body])


_CLAIM_COLUMNS: Final = ("adversary", "protects", "epsilon", "delta")
_NO_CLAIM: Final = {"epsilon": "nothing is claimed", "delta": None}


def format_markdown(published: PublishedAnswer, claims: Sequence[Mapping[str, Any]] = ()) -> str:
    """Format a result as Markdown, the headline first; with claims of its certificate, all that was found."""
    document = write_conclusion(published)
    if claims:
        notes, document = document.notes, write_details(published.conclusion, published.result)
        rows = [{key: row[key] for key in _CLAIM_COLUMNS} for row in claims]
        privacy = [row | (_NO_CLAIM if row["epsilon"] is None else {}) for row in rows]
        over_time = [table for part in published.result.all_of(EffectsOverTime) for table in part_tables(part)]
        document = document._replace(
            tables=[*document.tables, *over_time, TitledTable("Privacy", privacy)], notes=notes
        )
    return "\n\n".join(_iter_markdown(published.experiment, document)) + "\n"


def _iter_markdown(title: str, document: AnswerDocument) -> Iterator[str]:
    """Yield a document's paragraphs and tables as Markdown."""
    yield f"# {escape_markdown(title)}"
    yield f"**{escape_markdown(document.headline)}**"
    if document.warnings:
        yield "\n".join(f"- warning: {escape_markdown(warning)}" for warning in document.warnings)
    yield from map(escape_markdown, document.sentences)
    yield from map(_format_markdown_table, document.tables)
    yield "\n".join(f"- {escape_markdown(note)}" for note in document.notes)
