"""Printing of policies and results on a terminal: bins of one or two features as a map of letters, or tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.text import Text

from privateer_core.answer.conclusion import PublishedAnswer
from privateer_core.answer.facts import Between
from privateer_core.answer.policy_view import BinShares, PolicyView, leading_option
from privateer_lab.cli.output import print_lines, print_rows, print_table, screen
from privateer_lab.render.documents import AnswerDocument, list_conclusion_tables
from privateer_lab.render.pictures import COLOURS
from privateer_lab.render.tables import TitledTable, part_tables, readable_cell

_LETTERS: Final = "ABCDEFGHIJKLMNOP"
_TIE_MARK: Final = "."


def print_policy(name: str, view: PolicyView, arms: Sequence[str], max_rows: int | None = None) -> None:
    """Print a policy: a map if it divides one or two numeric features into bins, else tables of ``max_rows``."""
    if not print_map(view, arms):
        for table in part_tables(view):
            _print_titled(table._replace(title=f"policy of {name}: {table.title}"), max_rows)


def print_map(view: PolicyView, arms: Sequence[str]) -> bool:
    """Print a policy as a map if it divides one or two numeric features into bins; return whether it does."""
    if not (isinstance(view.shows, BinShares) and _is_mappable(view.shows)):
        return False
    screen.print(draw_map(view.shows, arms))
    return True


def print_document(document: AnswerDocument) -> None:
    """Print an answer: headline, warnings, sentences, tables and notes."""
    print_lines([document.headline], style="bold")
    print_lines(document.sentences)
    print_warnings(document.warnings)
    for table in document.tables:
        _print_titled(table)
    print_lines(document.notes)


def print_rules(published: PublishedAnswer) -> bool:
    """Print the headline and the rules alone; return whether there are rules."""
    conclusion = published.conclusion
    if conclusion.rules:
        print_lines([conclusion.headline.sentence])
        _print_titled(list_conclusion_tables(conclusion)[0])
    return conclusion.rules is not None


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings, a line each."""
    print_lines(f"warning: {warning}" for warning in warnings)


def _print_titled(table: TitledTable, max_rows: int | None = None) -> None:
    """Print the first rows of a table, with empty cells for None, or a table of facts."""
    if table.columns == ["fact", "value"]:
        print_table(table.title, [(row["fact"], row["value"]) for row in table.rows])
        return
    rows = table.rows[:max_rows]
    print_rows(table.title, [{name: readable_cell(name, row.get(name)) for name in table.columns} for row in rows])
    if len(rows) < len(table.rows):
        screen.print(f"{len(table.rows) - len(rows):,} more of {len(table.rows):,} rows are not shown: --json has them")


def _is_mappable(shows: BinShares) -> bool:
    """Whether bins are ranges of one or two numeric features."""
    conditions = (condition for bin_ in shows.bins for condition in bin_.where)
    are_ranges = all(isinstance(condition, Between) and not condition.missing for condition in conditions)
    return are_ranges and 1 <= len(shows.columns) <= 2


def draw_map(shows: BinShares, arms: Sequence[str], width: int = 48, height: int = 16) -> Text:
    """Draw a map of letters and colours, the first feature to the right, the second up.

    A letter stands for the arm with the largest share: lower case if other arms are tried, too. A dot is a tie.
    """
    arms = list(dict.fromkeys([*arms, *(name for bin_ in shows.bins for name in bin_.arms)]))
    n_lines, text = height if len(shows.columns) > 1 else 1, Text()
    letters = {id(bin_): _choose_letter(bin_.arms, arms) for bin_ in shows.bins}
    for line in range(n_lines):
        for column in range(width):
            point = ((column + 0.5) / width, 1 - (line + 0.5) / n_lines)
            inside = (
                bin_
                for bin_ in shows.bins
                if all(low <= at < high for at, low, high in zip(point, bin_.lower, bin_.upper, strict=False))
            )
            letter = letters[id(next(inside, shows.bins[0]))]
            colour = COLOURS[_LETTERS.index(letter.upper()) % len(COLOURS)] if letter.isalpha() else ""
            text.append(letter, style=f"black on {colour}" if letter.isupper() else colour)
        text.append("\n")
    parts, marks = [", ".join(f"{_LETTERS[k]} = {name}" for k, name in enumerate(arms))], set(text.plain)
    if any(mark.islower() for mark in marks):
        parts.append("lower case: several arms are still tried")
    if _TIE_MARK in marks:
        parts.append(f"{_TIE_MARK}: several have the same share, and none is ahead")
    return text.append("; ".join(parts))


def _choose_letter(shares: Mapping[str, float], arms: Sequence[str]) -> str:
    """Choose a cell's letter: capital if one arm alone is played, lower case otherwise, a mark for a tie."""
    best_arm = leading_option(dict(shares))
    if best_arm is None:
        return _TIE_MARK
    letter = _LETTERS[arms.index(best_arm)]
    return letter if sum(share > 0 for share in shares.values()) == 1 else letter.lower()
