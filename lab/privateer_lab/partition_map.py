"""A partition of one or two features as text: which arm each place plays."""

from typing import Any

import numpy as np

_SHADES = "ABCDEFGHIJKLMNOP"


def draw(policy: dict[str, Any], arms: list[str], width: int = 48, height: int = 16) -> str:
    """The policy as a map of letters, first feature to the right, second up; lower case where arms are still tried.

    Parameters
    ----------
    policy
        As `PartitionPolicy.describe` gives it.
    arms
        Names, in order.
    width, height
        Characters.
    """
    bins = policy["bins"]
    lower = np.array([row["lower"] for row in bins])
    upper = np.array([row["upper"] for row in bins])
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
    legend = ", ".join(f"{_SHADES[k]} = {name}" for k, name in enumerate(arms))
    return "\n".join([*lines, f"{legend}; lower case: still trying others"])


def _letter(shares: dict[str, float], arms: list[str]) -> str:
    favourite = max(shares, key=lambda name: shares[name])
    letter = _SHADES[arms.index(favourite)]
    return letter if len(shares) == 1 else letter.lower()
