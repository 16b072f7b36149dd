"""Printing of policies and results on a terminal: bins of one or two features as a map of letters, or tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from rich.text import Text

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion, PublishedAnswer
from privateer_core.answer.facts import Between
from privateer_core.answer.parts import BinMeans, DriftTest, EffectsOverTime, FeatureSelection
from privateer_core.answer.policy_view import BinShares, PolicyView, leading_option
from privateer_lab.cli.output import print_lines, print_rows, print_table, screen
from privateer_lab.render.conclusion_tables import conclusion_notes, list_conclusion_tables
from privateer_lab.render.pictures import COLOURS
from privateer_lab.render.tables import Row, answer_tables, estimate_rows, part_tables, shape_tables
from privateer_lab.render.words import describe_conclusion, describe_feature_selection, format_drift

_LETTERS: Final = "ABCDEFGHIJKLMNOP"
_TIE_MARK: Final = "."
_MIN_P_VALUE: Final = 1e-6
"""The smallest p-value of a result; smaller p-values are rounded up to it."""
_MAX_BIN_ROWS: Final = 40
"""Largest number of bins with means on a terminal."""


def print_policy(name: str, view: PolicyView, arms: Sequence[str], max_rows: int | None = None) -> None:
    """Print a policy: a map if it divides one or two numeric features into bins, else tables of ``max_rows``."""
    if print_map(view, arms):
        return
    for title, rows in part_tables(view):
        _print_rows_or_facts(f"policy of {name}: {title}", rows[:max_rows])
        if max_rows is not None and len(rows) > max_rows:
            screen.print(f"{len(rows) - max_rows:,} more of {len(rows):,} rows are not shown")


def print_map(view: PolicyView, arms: Sequence[str]) -> bool:
    """Print a policy as a map if it divides one or two numeric features into bins; return whether it does."""
    if not (isinstance(view.shows, BinShares) and _is_mappable(view.shows)):
        return False
    screen.print(draw_map(view.shows, arms))
    return True


def print_answer(conclusion: Conclusion, answer: Answer) -> None:
    """Print headline, estimates and further parts of a result; no effect twice, and without effects at every look."""
    print_lines(describe_conclusion(conclusion, answer))
    confidence = "" if answer.confidence is None else f"intervals of {_format_percent(answer.confidence)} confidence"
    if answer.effects:
        screen.print(f"What follows has {confidence}.")
    elif answer.estimates:
        print_rows(f"estimates, with {confidence}" if confidence else "estimates", estimate_rows(answer.estimates))
    print_warnings(answer.warnings)
    print_lines(map(format_drift, answer.all_of(DriftTest)))
    print_lines(map(describe_feature_selection, answer.all_of(FeatureSelection)))
    in_words = DriftTest | FeatureSelection | EffectsOverTime | BinMeans
    other_parts = tuple(part for part in answer.parts if not isinstance(part, in_words))
    for title, rows in answer_tables(msgspec.structs.replace(answer, parts=other_parts)):
        _print_rows_or_facts(title, rows)
    for title, rows in (table for means in answer.all_of(BinMeans) for table in part_tables(means)):
        _print_rows_or_facts(title, rows[:_MAX_BIN_ROWS])
        if len(rows) > _MAX_BIN_ROWS:
            screen.print(f"{len(rows) - _MAX_BIN_ROWS:,} more of {len(rows):,} bins: --as policy --json has them")


def print_conclusion(published: PublishedAnswer) -> None:
    """Print the conclusion of an experiment: headline, rules, gain or effects, and notes on data and costs."""
    conclusion = published.conclusion
    print_lines([conclusion.headline.sentence], style="bold")
    print_warnings(conclusion.warnings)
    for title, rows in (*list_conclusion_tables(conclusion), *shape_tables(published.result)):
        _print_rows_or_facts(title, rows, words_left=True)
    print_lines(conclusion_notes(published))


def print_finished(conclusion: Conclusion, answer: Answer, basis: str, effects: str = "effects") -> None:
    """Print the result of a finished test: headline, effects, and notes on data and costs."""
    print_lines([conclusion.headline.sentence], style="bold")
    print_warnings(answer.warnings)
    for title, rows in list_conclusion_tables(conclusion, effects):
        _print_rows_or_facts(title, rows, words_left=True)
    coverage = [conclusion.rules.people] if conclusion.rules else []
    print_lines([*conclusion.next_steps, basis, *coverage, conclusion.privacy.sentence, conclusion.reward.sentence])


def print_rules(published: PublishedAnswer) -> bool:
    """Print the headline and the rules alone; return whether there are rules."""
    conclusion = published.conclusion
    if conclusion.rules is None:
        return False
    print_lines([conclusion.headline.sentence])
    title, rows = list_conclusion_tables(conclusion)[0]
    _print_rows_or_facts(title, rows, words_left=True)
    return True


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings, a line each."""
    print_lines(f"warning: {warning}" for warning in warnings)


def _print_rows_or_facts(title: str, rows: Sequence[Row], *, words_left: bool = False) -> None:
    """Print a table of rows, with empty cells for None, or a table of facts."""
    if rows and set(rows[0]) == {"fact", "value"}:
        print_table(title, [(row["fact"], row["value"]) for row in rows])
    else:
        cells = [{name: _format_cell(name, cell) for name, cell in row.items()} for row in rows]
        print_rows(title, cells, words_left=words_left)


def _format_cell(name: str, cell: object) -> object:
    """Return a cell for the terminal: the smallest p-value is printed as an upper bound."""
    if name == "p" and cell == _MIN_P_VALUE:
        return f"below {_MIN_P_VALUE:.6f}"
    return "" if cell is None else cell


def _format_percent(share: float) -> str:
    """Format a share in percent without rounding it up to 100."""
    return f"{share:.10%}".rstrip("%").rstrip("0").rstrip(".") + "%"


def _is_mappable(shows: BinShares) -> bool:
    """Whether bins are ranges of one or two numeric features."""
    conditions = (condition for bin_ in shows.bins for condition in bin_.where)
    are_ranges = all(isinstance(condition, Between) and not condition.missing for condition in conditions)
    return are_ranges and 1 <= len(shows.columns) <= 2


def draw_map(shows: BinShares, arms: Sequence[str], width: int = 48, height: int = 16) -> Text:
    """Draw a map of letters and colours, the first feature to the right, the second up.

    A letter stands for the arm with the largest share: lower case if other arms are tried, too. A dot is a tie.
    """
    import numpy as np

    arms = list(dict.fromkeys([*arms, *(name for bin_ in shows.bins for name in bin_.arms)]))
    lower, upper = (np.array([getattr(bin_, corner) for bin_ in shows.bins]) for corner in ("lower", "upper"))
    letters = [_arm_letter(bin_.arms, arms) for bin_ in shows.bins]
    n_lines = height if lower.shape[1] > 1 else 1
    lines = []
    for y in np.linspace(1 - 0.5 / n_lines, 0.5 / n_lines, n_lines):
        points = np.full((width, lower.shape[1]), 0.5)
        points[:, 0] = (np.arange(width) + 0.5) / width
        if lower.shape[1] > 1:
            points[:, 1] = y
        bin_indices = ((points[:, None] >= lower) & (points[:, None] < upper)).all(axis=2).argmax(axis=1)
        lines.append("".join(letters[index] for index in bin_indices))
    text = Text()
    for letter in "\n".join([*lines, ""]):
        text.append(letter, style=_letter_style(letter))
    return text.append(_format_legend(set("".join(lines)), arms))


def _format_legend(marks: set[str], arms: Sequence[str]) -> str:
    """Explain the letters of a map, and only the marks that are in it."""
    parts = [", ".join(f"{_LETTERS[k]} = {name}" for k, name in enumerate(arms))]
    if any(mark.islower() for mark in marks):
        parts.append("lower case: several arms are still tried")
    if _TIE_MARK in marks:
        parts.append(f"{_TIE_MARK}: several have the same share, and none is ahead")
    return "; ".join(parts)


def _arm_letter(shares: Mapping[str, float], arms: Sequence[str]) -> str:
    """Choose a cell's letter: capital if one arm alone is played, lower case otherwise, a mark for a tie."""
    best_arm = leading_option(dict(shares))
    if best_arm is None:
        return _TIE_MARK
    letter = _LETTERS[arms.index(best_arm)]
    return letter if sum(share > 0 for share in shares.values()) == 1 else letter.lower()


def _letter_style(letter: str) -> str:
    """Choose a letter's colour, and a filled cell for capitals."""
    if not letter.isalpha():
        return ""
    colour = COLOURS[_LETTERS.index(letter.upper()) % len(COLOURS)]
    return f"black on {colour}" if letter.isupper() else colour
