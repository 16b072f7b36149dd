"""The question of a team that onboards people: which of three screens makes whom buy within seven days?

The truth is known, so that whoever reads an answer can be checked: `means` has the probability of a purchase of
everybody under every screen.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SCREENS: Final = ("tour", "video", "short")
COUNTRIES: Final = {"US": 0.35, "DE": 0.2, "FR": 0.15, "BR": 0.15, "JP": 0.1, "IS": 0.045, "MC": 0.005}
PLATFORMS: Final = {"ios": 0.4, "android": 0.45, "web": 0.15}
_BY_COUNTRY: Final = (0.008, 0.004, 0.0, -0.008, 0.0, 0.004, 0.0)
_VIDEO: Final = (0.024, -0.012, 0.0)
"""What the video adds on each platform."""
_RECENT: Final = 7


@dataclass(frozen=True)
class People:
    """People who were shown a screen at random.

    Attributes
    ----------
    columns
        What the team's table has, by column; None where a value is missing.
    means
        Probability of a purchase under every screen, (people, 3).
    """

    columns: dict[str, list[Any]]
    means: NDArray[np.float64]

    def write(self, path: Path) -> Path:
        """Write the table as CSV."""
        with path.open("w", encoding="utf-8", newline="") as file:
            out = csv.writer(file)
            out.writerow(self.columns)
            out.writerows(zip(*self.columns.values(), strict=True))
        return path


def people(count: int = 50_000, seed: int = 0, *, alike: bool = False) -> People:
    """Draw people: about 5 in 100 buy.

    Parameters
    ----------
    count, seed
        How many, and which.
    alike
        Every screen is as good as any other for everybody, on the same base rates.
    """
    rng = np.random.default_rng([seed, 32])
    country = rng.choice(len(COUNTRIES), count, p=list(COUNTRIES.values()))
    platform = rng.choice(len(PLATFORMS), count, p=list(PLATFORMS.values()))
    days = np.minimum(np.floor(rng.exponential(14.0, count)), 365).astype(np.int64)
    premium, untold = rng.random(count) < 0.2, rng.random(count) < 0.12
    base = 0.044 + np.array(_BY_COUNTRY)[country] + 0.02 * premium
    recent = days < _RECENT
    added = np.stack([np.where(recent, 0.02, -0.012), np.array(_VIDEO)[platform], np.zeros(count)], axis=1)
    means = base[:, None] + (np.full_like(added, added.mean()) if alike else added)
    screen = rng.integers(0, len(SCREENS), count)
    bought = rng.random(count) < means[np.arange(count), screen]
    columns = {
        "user": list(range(1, count + 1)),
        "screen": [SCREENS[code] for code in screen],
        "country": [list(COUNTRIES)[code] for code in country],
        "platform": [list(PLATFORMS)[code] for code in platform],
        "days": days.tolist(),
        "premium": [None if gap else str(value).lower() for value, gap in zip(premium.tolist(), untold, strict=True)],
        "bought": bought.astype(int).tolist(),
    }
    return People(columns, means)
