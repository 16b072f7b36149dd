"""Rewards of drafted experiments on participants that no log has, beside other features, LinTS and boosted trees.

Run by hand, for minutes a table: ``python -m tests.support.draft_race hi FOLDER --seeds 2 > hi.jsonl`` prints a row for
each policy, promise and seed, and ``python -m tests.support.draft_race --table *.jsonl`` a summary. Seeds are those of
people; ``--log`` says which half is the log. What a draft advises for everybody is a policy, too.
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
from privateer_lab.baselines.libraries import BoostedTrees
from privateer_lab.baselines.run import Baseline, Constant, PlainColumns, Uniform, play_together
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.drafting.written_draft import Draft
from privateer_lab.planning.expectation.partial_runs import PartialRun, run_partially
from privateer_lab.planning.feature_sets.afforded import with_features
from privateer_lab.planning.feature_sets.selection import rank_features
from privateer_lab.planning.other_algorithms import contextual_algorithms, featureless_algorithm, with_own_rounds
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

    chunk_size = 100

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.columns = PlainColumns(spec)
        size = self.columns.one_hot(np.full((1, spec.dimension), 0.5)).shape[1]
        self.precisions = np.tile(np.eye(size), (spec.arm_count, 1, 1))
        self.sums = np.zeros((spec.arm_count, size))

    def choose(self, visitors: Any) -> Any:
        """Return arms, (n,)."""
        rows = self.columns.one_hot(visitors.contexts)
        roots = np.linalg.cholesky(self.precisions)
        means = np.linalg.solve(self.precisions, self.sums[:, :, None])[:, :, 0]
        spreads = np.linalg.solve(np.swapaxes(roots, 1, 2), self.rng.standard_normal((*self.sums.shape, len(rows))))
        return (rows @ means.T + np.einsum("nd,kdn->nk", rows, spreads)).argmax(axis=1)

    def learn(self, visitors: Any, arms: Any, values: Any) -> None:
        """Learn from these people."""
        rows = self.columns.one_hot(visitors.contexts)
        for arm in np.unique(arms):
            arm_rows = rows[arms == arm]
            self.precisions[arm] += arm_rows.T @ arm_rows
            self.sums[arm] += arm_rows.T @ values[arms == arm]


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

    def make_draft(self, promise: str) -> Draft:
        """Return the draft for a promise; the model of the rows, which knows of no promise, is fitted once."""
        model, epsilon = PROMISES[promise]
        private_draft = draft(self.log, arm=ARM, reward=REWARD, model=model, epsilon=epsilon)
        outcomes = self.model.outcomes
        private_draft.__dict__["people"] = log_model = replace(self.model, spec=cast(ArmsSpec, private_draft.spec))
        log_model.__dict__["outcomes"] = outcomes
        return private_draft

    def tables(self, text: str) -> dict[str, Any]:
        """Return the tables of a draft, with the people."""
        tables = tomllib.loads(text)
        columns = [f"brings {arm}" for arm in tables["experiment"]["arms"]]
        return tables | {"population": self.population | {"rewards": columns}}

    def reward(self, spec: ArmsSpec, seed: int) -> float:
        """Return the mean reward that a run earns, but for how the people of a seed differ from others."""
        run = run_partially(spec, seed, math.inf)
        if not isinstance(run, PartialRun):
            raise run
        return self.means[spec.options[run.arm]] + run.gain

    def peers(self, spec: ArmsSpec, seed: int) -> dict[str, float]:
        """Return the mean rewards of peers without privacy."""
        baselines = {"LinTS": LinearThompson, "trees": BoostedTrees, "constant": Constant, "uniform": Uniform}
        runs = play_together(spec, {name: make(spec, seed) for name, make in baselines.items()}, seed)
        regret = {run.name: run.regret / spec.experiment.horizon for run in runs}
        best = max(self.means.values())
        rewards = {name: best + regret["constant"] - loss for name, loss in regret.items()}
        return rewards | {"uniform": float(np.mean([*self.means.values()]))}


def sets_of(race: Race, tables: dict[str, Any], further: Sequence[Sequence[str]]) -> dict[str, ArmsSpec]:
    """Return experiments with few features, or none, by their names."""
    best = rank_features(race.model.outcomes)
    sets = [*((feature,) for feature in best[:_SINGLES]), *combinations(best[:_PAIRED], 2), *map(tuple, further)]
    keyed, summed = contextual_algorithms()[0], contextual_algorithms()[-1]
    candidates = [(names, summed) for names in sets] + [(names, keyed) for names in sets if len(names) == 1]
    specs: dict[str, ArmsSpec | None] = {}
    for features, algorithm in candidates:
        name = f"{algorithm} {'+'.join(sorted(features))}"
        specs[name] = with_own_rounds(with_features(tables, features), algorithm)
    specs[featureless_algorithm()] = with_own_rounds(tables, featureless_algorithm())
    return {name: spec for name, spec in specs.items() if spec is not None}


def race_policies(
    race: Race, promises: Sequence[str], seeds: int, *, hindsight: bool, before: bool
) -> Iterator[dict[str, Any]]:
    """Give a row for each policy, promise and seed."""
    plain = race.tables(draft(race.log, arm=ARM, reward=REWARD, model="none").text)
    full_spec = cast(ArmsSpec, with_own_rounds(plain, contextual_algorithms()[-1]))
    for seed in range(seeds):
        for name, reward in race.peers(full_spec, seed).items():
            yield {"table": race.name, "promise": "", "policy": name, "seed": seed, "reward": reward}
    for promise in promises:
        started, row = time.process_time(), {"table": race.name, "promise": promise}
        try:
            private_draft = race.make_draft(promise)
        except SpecError as error:  # too few rows for a crowd
            yield row | {"policy": "now", "seed": 0, "reward": math.nan, "told": str(error)}
            continue
        text = private_draft.text_with_choice
        seconds = time.process_time() - started
        now = cast(ArmsSpec, parse_spec(race.tables(text)))
        description = f"{now.algorithm.name} {'+'.join(now.features)} of {len(now.options)} options"
        runs = {"now": now}
        whole = race.tables(private_draft.text)
        if before:
            runs["before"] = cast(ArmsSpec, with_own_rounds(whole, contextual_algorithms()[-1]))
        if hindsight:
            sets = sets_of(race, whole, [tuple(now.features)] if now.features else [])
            first = {name: race.reward(spec, _FIRST) for name, spec in sets.items()}
            finalists = sorted(first, key=lambda name: -first[name])[:_FINAL]
            runs |= {f"set: {name}": sets[name] for name in finalists}
        for seed in range(seeds if private_draft.single_option else 0):
            advised = race.means[private_draft.single_option or ""]
            yield row | {"policy": "advised", "seed": seed, "reward": advised}
        for name, spec in runs.items():
            for seed in range(seeds):
                remarks = {"told": description, "seconds": seconds} if name == "now" else {}
                try:
                    reward = race.reward(spec, seed)
                except SpecError as error:
                    reward, remarks = math.nan, {"told": str(error)}
                yield row | {"policy": name, "seed": seed, "reward": reward} | remarks


def count_kept_of_shuffled(race: Race, promises: Sequence[str], logs: int) -> Iterator[dict[str, Any]]:
    """Give a row for each promise and log with permuted rewards: how many features and options are kept."""
    for seed in range(logs):
        shuffled = replace(race, seed=seed, shuffled=True)
        for promise in promises:
            now = read_spec(shuffled.make_draft(promise).text_with_choice)
            counts = {"features": len(cast(ArmsSpec, now).features), "options": len(now.options)}
            yield {"table": race.name, "promise": promise, "policy": "shuffled", "seed": seed} | counts


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Give lines: the share of what LinTS gains over the best constant option, by table and promise."""
    for table in dict.fromkeys(row["table"] for row in rows):
        of_table = [row for row in rows if row["table"] == table]

        def mean(policy: str, promise: str = "", of_table: Any = of_table) -> float:
            rewards = [row["reward"] for row in of_table if row["policy"] == policy and row["promise"] == promise]
            return float(np.mean(rewards)) if rewards else math.nan

        constant, uniform, linear = mean("constant"), mean("uniform"), max(mean("LinTS"), mean("trees"))
        peers = {name: round(mean(name), 4) for name in ("uniform", "constant", "LinTS", "trees")}
        yield f"{table}: {peers}"
        for promise in dict.fromkeys(row["promise"] for row in of_table if row["promise"]):
            of_promise = [row for row in of_table if row["promise"] == promise]
            sets = {row["policy"] for row in of_promise if row["policy"].startswith("set: ")}
            best = max(sets, key=lambda policy: mean(policy, promise), default="")
            figures = {"before": "before", "now": "now", "advised": "advised", "hindsight": best}
            shares = [
                f"{name} {(mean(policy, promise) - constant) / (linear - constant):5.2f}"
                for name, policy in figures.items()
            ]
            below = (constant - mean("now", promise)) / (constant - uniform)
            description = next((row.get("told", "") for row in of_promise if row["policy"] == "now"), "")
            yield f"  {promise:10s} {', '.join(shares)}; below constant {below:6.3f}; {description}; {best}"


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
    parser.add_argument("--log", type=int, default=0, help="the seed of the log")
    parser.add_argument("--uneven", action="store_true")
    parser.add_argument("--ignore", action="append", default=[], metavar="COLUMN")
    parser.add_argument("--shuffled", action="store_true")
    args = parser.parse_args()
    if args.table:
        files = [Path(name).read_text(encoding="utf-8") for name in (args.name, *args.more)]
        print("\n".join(summary([json.loads(line) for text in files for line in text.splitlines()])))
        return
    folder, promises = Path(args.more[0]), args.promises.split(",")
    table = logged_table(args.name, folder)
    table = replace(table, features=table.features.drop(columns=args.ignore))
    race = Race(args.name, table, folder, args.log, args.rows, args.uneven)
    if args.shuffled:
        rows = count_kept_of_shuffled(race, promises, args.seeds)
    else:
        rows = race_policies(race, promises, args.seeds, hindsight=args.hindsight, before=args.before)
    for row in rows:
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
