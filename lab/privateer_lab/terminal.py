"""Policies and answers on a terminal: bins of one or two features as a map of letters, all else as tables."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from rich.text import Text

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion, PublishedAnswer
from privateer_core.answer.facts import Between
from privateer_core.answer.parts import BinMeans, Contradiction, EffectsOverTime, FeatureSelection
from privateer_core.answer.policy_view import BinShares, PolicyView, leading
from privateer_lab.answer_tables import Row, estimates_of, rows_of, tables_of, tables_of_shapes
from privateer_lab.answer_words import contradicted, selected, sentences
from privateer_lab.cli.output import print_rows, print_table, screen
from privateer_lab.conclusion_tables import notes_of, tables_of_conclusion
from privateer_lab.picture import COLOURS

_LETTERS: Final = "ABCDEFGHIJKLMNOP"
_NONE: Final = "."
_LEAST_P: Final = 1e-6
"""The least p-value that an answer has."""
_ROWS: Final = 40
"""Bins of which a screen has the means."""


def print_policy(name: str, view: PolicyView, arms: Sequence[str], most: int | None = None) -> None:
    """Print a policy: as a map where it divides one or two numbers into bins, as tables otherwise.

    name: of the experiment.
    arms: those of its spec, in order.
    most: rows of a table, at most; None: all.
    """
    if print_map(view, arms):
        return
    for title, rows in rows_of(view):
        _print(f"policy of {name}: {title}", rows[:most])
        if most is not None and len(rows) > most:
            screen.print(f"{len(rows) - most:,} more of {len(rows):,} rows are not shown")


def print_map(view: PolicyView, arms: Sequence[str]) -> bool:
    """Print a policy that divides one or two numbers into bins as a map; tell whether it is one."""
    is_map = isinstance(view.shows, BinShares) and _has_a_map(view.shows)
    if isinstance(view.shows, BinShares) and is_map:
        screen.print(draw_map(view.shows, arms))
    return is_map


def print_answer(conclusion: Conclusion, answer: Answer) -> None:
    """Print the headline, estimates with their intervals, and whatever else was found.

    Estimates that are effects are not printed twice, nor are those of every look: a picture shows them.
    """
    for sentence in sentences(conclusion, answer):
        screen.print(sentence, soft_wrap=True, markup=False)
    confidence = "" if answer.confidence is None else f"intervals of {_percent(answer.confidence)} confidence"
    if answer.effects:
        screen.print(f"What follows has {confidence}.")
    elif answer.estimates:
        print_rows(f"estimates, with {confidence}" if confidence else "estimates", estimates_of(answer.estimates))
    print_warnings(answer)
    for contradiction in answer.all_of(Contradiction):
        screen.print(contradicted(contradiction), soft_wrap=True, markup=False)
    for features in answer.all_of(FeatureSelection):
        screen.print(selected(features), soft_wrap=True, markup=False)
    in_words = Contradiction | FeatureSelection | EffectsOverTime | BinMeans
    others = tuple(part for part in answer.parts if not isinstance(part, in_words))
    for title, rows in tables_of(msgspec.structs.replace(answer, parts=others)):
        _print(title, rows)
    for means in answer.all_of(BinMeans):
        for title, rows in rows_of(means):
            _print_some(title, rows)


def print_conclusion(published: PublishedAnswer) -> None:
    """Print the answer of an experiment: its headline, rules, gain or effects, and what it rests on and cost."""
    conclusion = published.conclusion
    screen.print(conclusion.headline.sentence, style="bold", soft_wrap=True, markup=False)
    for warning in conclusion.warnings:
        screen.print(f"warning: {warning}", soft_wrap=True, markup=False)
    for title, rows in (*tables_of_conclusion(conclusion), *tables_of_shapes(published.found)):
        _print(title, rows, words_left=True)
    for note in notes_of(published):
        screen.print(note, soft_wrap=True, markup=False)


def print_finished(conclusion: Conclusion, answer: Answer, rests: str, effects: str = "effects") -> None:
    """Print what rows, or people, of a test that is over say: headline, effects, what they rest on and cost."""
    screen.print(conclusion.headline.sentence, style="bold", soft_wrap=True, markup=False)
    print_warnings(answer)
    for title, rows in tables_of_conclusion(conclusion, effects):
        _print(title, rows, words_left=True)
    shares = [conclusion.rules.people] if conclusion.rules else []
    for note in (*conclusion.surer, rests, *shares, conclusion.privacy.sentence, conclusion.reward.sentence):
        screen.print(note, soft_wrap=True, markup=False)


def print_rules(published: PublishedAnswer) -> bool:
    """Print the headline and the rules alone; tell whether there are any."""
    conclusion = published.conclusion
    if conclusion.rules is None:
        return False
    screen.print(conclusion.headline.sentence, soft_wrap=True, markup=False)
    title, rows = tables_of_conclusion(conclusion)[0]
    _print(title, rows, words_left=True)
    return True


def print_warnings(answer: Answer) -> None:
    """Print what to look at before anybody acts on an answer."""
    for warning in answer.warnings:
        screen.print(f"warning: {warning}", soft_wrap=True, markup=False)


def _print(title: str, rows: Sequence[Row], *, words_left: bool = False) -> None:
    """Print rows; what has no value is left empty, and facts are names and figures."""
    if rows and set(rows[0]) == {"fact", "value"}:
        print_table(title, [(row["fact"], row["value"]) for row in rows])
    else:
        cells = [{name: _shown(name, cell) for name, cell in row.items()} for row in rows]
        print_rows(title, cells, words_left=words_left)


def _shown(name: str, cell: object) -> object:
    """Return what a screen shows of a cell: p-values are rounded up, so the least one is a bound."""
    if name == "p" and cell == _LEAST_P:
        return f"below {_LEAST_P:.6f}"
    return "" if cell is None else cell


def _print_some(title: str, rows: list[Row]) -> None:
    _print(title, rows[:_ROWS])
    if len(rows) > _ROWS:
        screen.print(f"{len(rows) - _ROWS:,} more of {len(rows):,} bins: --as policy --json has them")


def _percent(share: float) -> str:
    """Write a share in percent without rounding it up to 100."""
    return f"{share:.10%}".rstrip("%").rstrip("0").rstrip(".") + "%"


def _has_a_map(shows: BinShares) -> bool:
    """Whether bins are of one or two numbers."""
    conditions = (one for bin_ in shows.bins for one in bin_.where)
    return 1 <= len(shows.columns) <= 2 and all(isinstance(one, Between) and not one.missing for one in conditions)


def draw_map(shows: BinShares, arms: Sequence[str], width: int = 48, height: int = 16) -> Text:
    """Draw a map of letters and colours, the first feature to the right, the second up.

    A letter is that of the arm that is played most: lower case where others are tried, too. A dot: none is ahead.

    arms: names, in order.
    width, height: characters.
    """
    arms = list(dict.fromkeys([*arms, *(name for one in shows.bins for name in one.arms)]))
    lower, upper = (np.array([getattr(one, corner) for one in shows.bins]) for corner in ("lower", "upper"))
    letters = [_letter(one.arms, arms) for one in shows.bins]
    tall = height if lower.shape[1] > 1 else 1
    lines = []
    for y in np.linspace(1 - 0.5 / tall, 0.5 / tall, tall):
        places = np.full((width, lower.shape[1]), 0.5)
        places[:, 0] = (np.arange(width) + 0.5) / width
        if lower.shape[1] > 1:
            places[:, 1] = y
        inside = ((places[:, None] >= lower) & (places[:, None] < upper)).all(axis=2).argmax(axis=1)
        lines.append("".join(letters[b] for b in inside))
    text = Text()
    for letter in "\n".join([*lines, ""]):
        text.append(letter, style=_style(letter))
    return text.append(_legend(set("".join(lines)), arms))


def _legend(marks: set[str], arms: Sequence[str]) -> str:
    parts = [", ".join(f"{_LETTERS[k]} = {name}" for k, name in enumerate(arms))]
    if any(mark.islower() for mark in marks):
        parts.append("lower case: several arms are still tried")
    if _NONE in marks:
        parts.append(f"{_NONE}: several have the same share, and none is ahead")
    return "; ".join(parts)


def _letter(shares: Mapping[str, float], arms: Sequence[str]) -> str:
    favourite = leading(dict(shares))
    if favourite is None:
        return _NONE
    letter = _LETTERS[arms.index(favourite)]
    return letter if sum(share > 0 for share in shares.values()) == 1 else letter.lower()


def _style(letter: str) -> str:
    if not letter.isalpha():
        return ""
    colour = COLOURS[_LETTERS.index(letter.upper()) % len(COLOURS)]
    return f"black on {colour}" if letter.isupper() else colour
