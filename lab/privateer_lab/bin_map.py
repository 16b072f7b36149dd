"""Bins in words, and those of one or two features as a map of letters: which arm each place plays."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from rich.text import Text

from privateer_lab.output import whole_percent

_LETTERS: Final = "ABCDEFGHIJKLMNOP"
_NONE: Final = "."
_TIED: Final = 1e-6
_COLOURS: Final = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#9a9a9a", "#3b95cf")


def draw(bins: list[dict[str, Any]], arms: list[str], width: int = 48, height: int = 16) -> str:
    """Draw a map of letters, the first feature to the right, the second up.

    A letter is that of the arm that is played most: lower case where others are tried, too. A dot: none is ahead.

    Parameters
    ----------
    bins
        Each with the corners ``lower`` and ``upper``, and the probability of each of its ``arms``.
    arms
        Names, in order.
    width, height
        Characters.
    """
    lower, upper = (np.array([row[corner] for row in bins]) for corner in ("lower", "upper"))
    letters = [_letter(row["arms"], arms) for row in bins]
    tall = height if lower.shape[1] > 1 else 1
    lines = []
    for y in np.linspace(1 - 0.5 / tall, 0.5 / tall, tall):
        places = np.full((width, lower.shape[1]), 0.5)
        places[:, 0] = (np.arange(width) + 0.5) / width
        if lower.shape[1] > 1:
            places[:, 1] = y
        inside = ((places[:, None] >= lower) & (places[:, None] < upper)).all(axis=2).argmax(axis=1)
        lines.append("".join(letters[b] for b in inside))
    legend = ", ".join(f"{_LETTERS[k]} = {name}" for k, name in enumerate(arms))
    marks = set("".join(lines))
    told = ["lower case: several arms are still tried"] if any(mark.islower() for mark in marks) else []
    told += [f"{_NONE}: several have the same share, and none is ahead"] if _NONE in marks else []
    return "\n".join([*lines, "; ".join([legend, *told])])


def _letter(shares: dict[str, float], arms: list[str]) -> str:
    favourite = leading(shares)
    if favourite is None:
        return _NONE
    letter = _LETTERS[arms.index(favourite)]
    return letter if sum(share > 0 for share in shares.values()) == 1 else letter.lower()


def leading(arms: Mapping[str, float]) -> str | None:
    """Return the arm with the largest share; None where several have it."""
    most = max(arms.values())
    first = [name for name, share in arms.items() if share > most - _TIED]
    return first[0] if len(first) == 1 else None


def people_in(where: Mapping[str, Any]) -> str:
    """Say which people are in a bin, by the values of the features that it restricts."""
    return "; ".join(_part(name, values) for name, values in where.items()) or "all"


def within(name: str, low: float, high: float) -> str:
    """Say from where to where a number of people is."""
    return f"{name} from {low:z.4g} to {high:z.4g}"


def chosen_by(arms: Mapping[str, float]) -> str:
    """Say how often each arm is chosen; one that has no rival is named alone."""
    shown = {arm: share for arm, share in arms.items() if share > 0}
    return ", ".join(shown if len(shown) == 1 else (f"{arm} {whole_percent(share)}" for arm, share in shown.items()))


def _part(name: str, values: Any) -> str:
    """Write the ends of a number's interval, or levels; null stands for people who have no value."""
    ends = [one for one in values if one is not None] if isinstance(values, list) else []
    if len(ends) == 2 and all(isinstance(one, float) for one in ends):
        return within(name, *ends) + (", or missing" if None in values else "")
    return f"{name}: {', '.join('missing' if one is None else _written(one) for one in values or [None])}"


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:z.4g}" if isinstance(value, float) else str(value)


def coloured(drawn: str) -> Text:
    """Return a map with a colour for each letter; the letters stay for whoever sees none."""
    *rows, legend = drawn.split("\n")
    text = Text()
    for row in rows:
        for letter in row:
            text.append(letter, style=_style(letter))
        text.append("\n")
    return text.append(legend)


def _style(letter: str) -> str:
    if letter == _NONE:
        return ""
    background = _COLOURS[_LETTERS.index(letter.upper()) % len(_COLOURS)]
    return f"black on {background}" if letter.isupper() else f"{background}"
