"""What drafted experiments earn that their log did not see, beside other sets of features, LinTS and boosted trees.

Run by hand, for minutes a table: ``python -m tests.support.draft_race hi FOLDER --seeds 2 > hi.jsonl`` prints a row for
each policy, promise and seed, and ``python -m tests.support.draft_race --table *.jsonl`` a summary. Seeds are those of
people; the log is always the same half.
"""

import argparse
import json
import math
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from privateer_core.algorithms import parse_spec, read_spec
from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.base import Baseline
from privateer_lab.baselines.boosting import BoostedTrees
from privateer_lab.baselines.plain_columns import PlainColumns
from privateer_lab.baselines.run import Constant, Uniform, play_together
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.drafting.written_draft import Draft
from privateer_lab.planning.expectation.partial_runs import PartialRun, played
from privateer_lab.planning.feature_sets.afforded import with_some
from privateer_lab.planning.feature_sets.selection import most_telling
from privateer_lab.planning.other_algorithms import by_features, with_own_rounds, without_features
from tests.support.logged_tables import ARM, REWARD, LoggedTable, logged_table

PROMISES: Final[dict[str, tuple[str, float | None]]] = {
    "none": ("none", None),
    "central 1": ("central", 1.0),
    "shuffle 1": ("shuffle", 1.0),
    "local 4": ("local", 4.0),
    "local 1": ("local", 1.0),
}
_SINGLES, _PAIRED, _FINAL = 4, 3, 3
"""Features that are tried alone and in pairs, those that tell most; and sets that are run again with all seeds."""
_FIRST: Final = 900
"""The seed of the runs by which sets are chosen in hindsight."""


class LinearThompson(Baseline):
    """A ridge regression for each arm on one-hot features; each person gets the best of a draw (mabwiser's LinTS)."""

    at_once = 100

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.columns = PlainColumns(spec)
        size = self.columns.one_hot(np.full((1, spec.dimension), 0.5)).shape[1]
        self.precisions = np.tile(np.eye(size), (spec.arm_count, 1, 1))
        self.sums = np.zeros((spec.arm_count, size))

    def choose(self, visitors: Any) -> Any:
        """Return arms, (n,)."""
        known = self.columns.one_hot(visitors.contexts)
        roots = np.linalg.cholesky(self.precisions)
        means = np.linalg.solve(self.precisions, self.sums[:, :, None])[:, :, 0]
        spreads = np.linalg.solve(np.swapaxes(roots, 1, 2), self.rng.standard_normal((*self.sums.shape, len(known))))
        return (known @ means.T + np.einsum("nd,kdn->nk", known, spreads)).argmax(axis=1)

    def learn(self, visitors: Any, arms: Any, values: Any) -> None:
        """Learn from these people."""
        known = self.columns.one_hot(visitors.contexts)
        for arm in np.unique(arms):
            own = known[arms == arm]
            self.precisions[arm] += own.T @ own
            self.sums[arm] += own.T @ values[arms == arm]


@dataclass(frozen=True)
class Race:
    """A table's experiments, of which none has seen the people whom it meets."""

    name: str
    table: LoggedTable
    folder: Path
    seed: int = 0
    rows: int = 12_000  # of the log
    uneven: bool = False  # whether the log gave each option half as often as the one before
    shuffled: bool = False  # whether rewards of the log are those of others

    @cached_property
    def halves(self) -> tuple[LoggedTable, LoggedTable]:
        """People of the log, and of the experiment."""
        return self.table.halves(self.seed, self.rows)

    @cached_property
    def population(self) -> dict[str, Any]:
        """The people of the experiment, with the columns of all options."""
        path = self.folder / f"{self.name}.people.parquet"
        return {"name": "rows", "path": str(path), "rewards": self.halves[1].write(path), "missing": "drop"}

    @cached_property
    def means(self) -> dict[str, float]:
        """What each option brings, on average."""
        return dict(zip(self.table.options, self.halves[1].rewards.mean(axis=0).tolist(), strict=True))

    @cached_property
    def log(self) -> Any:
        """The log."""
        shares = 0.5 ** np.arange(len(self.table.options)) if self.uneven else np.ones(len(self.table.options))
        return self.halves[0].log(self.seed, shares / shares.sum(), shuffled=self.shuffled)

    @cached_property
    def model(self) -> Any:
        """People of the log, with the model of its rows."""
        return draft(self.log, arm=ARM, reward=REWARD, model="none").people

    def drafted(self, promise: str) -> Draft:
        """Return the draft for a promise; the model of the rows, which knows of no promise, is fitted once."""
        model, epsilon = PROMISES[promise]
        made = draft(self.log, arm=ARM, reward=REWARD, model=model, epsilon=epsilon)
        outcomes = self.model.outcomes
        made.__dict__["people"] = known = replace(self.model, spec=cast(ArmsSpec, made.spec))
        known.__dict__["outcomes"] = outcomes
        return made

    def tables(self, text: str) -> dict[str, Any]:
        """Return the tables of a draft, with the people."""
        tables = tomllib.loads(text)
        own = [f"brings {one}" for one in tables["experiment"]["arms"]]
        return tables | {"population": self.population | {"rewards": own}}

    def reward(self, spec: ArmsSpec, seed: int) -> float:
        """Return the mean reward that a run earns, but for how the people of a seed differ from others."""
        run = played(spec, seed, math.inf)
        if not isinstance(run, PartialRun):
            raise run
        return self.means[spec.options[run.option]] + run.gain

    def peers(self, spec: ArmsSpec, seed: int) -> dict[str, float]:
        """Return what others earn without privacy."""
        made = {"LinTS": LinearThompson, "trees": BoostedTrees, "constant": Constant, "uniform": Uniform}
        runs = play_together(spec, {name: make(spec, seed) for name, make in made.items()}, seed)
        regret = {run.name: run.regret / spec.experiment.horizon for run in runs}
        best = max(self.means.values())
        found = {name: best + regret["constant"] - one for name, one in regret.items()}
        return found | {"uniform": float(np.mean([*self.means.values()]))}


def sets_of(race: Race, tables: dict[str, Any], more: Sequence[Sequence[str]]) -> dict[str, ArmsSpec]:
    """Return experiments with few features, or none, by what they are called."""
    best = most_telling(race.model.outcomes)
    names = [*((one,) for one in best[:_SINGLES]), *combinations(best[:_PAIRED], 2), *map(tuple, more)]
    keyed, summed = by_features()[0], by_features()[-1]
    tried = [(summed, one) for one in names] + [(keyed, one) for one in names if len(one) == 1]
    specs = {f"{how} {'+'.join(sorted(one))}": with_own_rounds(with_some(tables, one), how) for how, one in tried}
    specs[without_features()] = with_own_rounds(tables, without_features())
    return {name: spec for name, spec in specs.items() if spec is not None}


def raced(
    race: Race, promises: Sequence[str], seeds: int, *, hindsight: bool, before: bool
) -> Iterator[dict[str, Any]]:
    """Give a row for each policy, promise and seed."""
    plain = race.tables(draft(race.log, arm=ARM, reward=REWARD, model="none").text)
    known = cast(ArmsSpec, with_own_rounds(plain, by_features()[-1]))
    for seed in range(seeds):
        for name, reward in race.peers(known, seed).items():
            yield {"table": race.name, "promise": "", "policy": name, "seed": seed, "reward": reward}
    for promise in promises:
        started = time.process_time()
        made = race.drafted(promise)
        text = made.fitted
        seconds = time.process_time() - started
        now = cast(ArmsSpec, parse_spec(race.tables(text)))
        told = f"{now.algorithm.name} {'+'.join(now.features)} of {len(now.options)} options"
        row = {"table": race.name, "promise": promise}
        runs = {"now": now}
        whole = race.tables(made.text)
        if before:
            runs["before"] = cast(ArmsSpec, with_own_rounds(whole, by_features()[-1]))
        if hindsight:
            sets = sets_of(race, whole, [tuple(now.features)] if now.features else [])
            first = {name: race.reward(spec, _FIRST) for name, spec in sets.items()}
            finalists = sorted(first, key=lambda one: -first[one])[:_FINAL]
            runs |= {f"set: {name}": sets[name] for name in finalists}
        for name, spec in runs.items():
            for seed in range(seeds):
                said = {"told": told, "seconds": seconds} if name == "now" else {}
                try:
                    reward = race.reward(spec, seed)
                except SpecError as error:
                    reward, said = math.nan, {"told": str(error)}
                yield row | {"policy": name, "seed": seed, "reward": reward} | said


def kept_of_shuffled(race: Race, promises: Sequence[str], logs: int) -> Iterator[dict[str, Any]]:
    """Give a row for each promise and log whose rewards are those of others: how many features and options are kept."""
    for seed in range(logs):
        own = replace(race, seed=seed, shuffled=True)
        for promise in promises:
            now = read_spec(own.drafted(promise).fitted)
            kept = {"features": len(cast(ArmsSpec, now).features), "options": len(now.options)}
            yield {"table": race.name, "promise": promise, "policy": "shuffled", "seed": seed} | kept


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Give lines: the share of what LinTS gains over the best constant option, by table and promise."""
    for table in dict.fromkeys(row["table"] for row in rows):
        own = [row for row in rows if row["table"] == table]

        def mean(policy: str, promise: str = "", own: Any = own) -> float:
            found = [row["reward"] for row in own if row["policy"] == policy and row["promise"] == promise]
            return float(np.mean(found)) if found else math.nan

        constant, uniform, linear = mean("constant"), mean("uniform"), max(mean("LinTS"), mean("trees"))
        peers = {name: round(mean(name), 4) for name in ("uniform", "constant", "LinTS", "trees")}
        yield f"{table}: {peers}"
        for promise in dict.fromkeys(row["promise"] for row in own if row["promise"]):
            of = [row for row in own if row["promise"] == promise]
            sets = {row["policy"] for row in of if row["policy"].startswith("set: ")}
            best = max(sets, key=lambda one: mean(one, promise), default="")
            figures = {"before": "before", "now": "now", "hindsight": best}
            shares = [
                f"{name} {(mean(policy, promise) - constant) / (linear - constant):5.2f}"
                for name, policy in figures.items()
            ]
            below = (constant - mean("now", promise)) / (constant - uniform)
            told = next((row.get("told", "") for row in of if row["policy"] == "now"), "")
            yield f"  {promise:10s} {', '.join(shares)}; below constant {below:6.3f}; {told}; {best}"


def main() -> None:
    """Print rows of a table, or a summary of rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("more", nargs="*")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--promises", default=",".join(PROMISES))
    parser.add_argument("--hindsight", action="store_true")
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--uneven", action="store_true")
    parser.add_argument("--shuffled", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        files = [Path(one).read_text(encoding="utf-8") for one in (asked.name, *asked.more)]
        print("\n".join(summary([json.loads(line) for text in files for line in text.splitlines()])))
        return
    folder, promises = Path(asked.more[0]), asked.promises.split(",")
    race = Race(asked.name, logged_table(asked.name, folder), folder, rows=asked.rows, uneven=asked.uneven)
    if asked.shuffled:
        rows = kept_of_shuffled(race, promises, asked.seeds)
    else:
        rows = raced(race, promises, asked.seeds, hindsight=asked.hindsight, before=asked.before)
    for row in rows:
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
