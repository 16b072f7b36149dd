"""Paper 1, Table 2, its rows of the Adult data: reward relative to a tree that knows everything (ABSE)."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from privateer.errors import SpecError
from privateer.experiment import Spec, parse_spec
from privateer_lab.plots import COLOURS, panels
from privateer_lab.reproductions.base import OURS, Case, Effort, Row, mean, run, values

_PROMISES: Final = ((1.0, 1.0), (1.0, 4.0), (2.0, 1.0), (2.0, 4.0))
_TARGET: Final = 41_292
_SOURCE: Final = 3930
_PUBLISHED: Final = {
    (1.0, 1.0): ((1.459, 0.987, 0.950, 0.935), (1.101, 0.795, 0.715, 0.784)),
    (1.0, 4.0): ((1.602, 0.987, 0.986, 0.992), (1.210, 0.795, 0.771, 0.816)),
    (2.0, 1.0): ((1.459, 0.986, 0.986, 0.930), (1.102, 0.919, 0.772, 0.808)),
    (2.0, 4.0): ((1.602, 0.986, 0.968, 0.929), (1.210, 0.919, 0.762, 0.791)),
}
"""LDPMAB with auxiliary data; LDPMAB, Linear and NN without; for a quarter of the people, and for all."""
_NAMES: Final = ("LDPMAB, with sources", "LDPMAB", "Linear", "NN")


class Table2:
    """People born in the United States are the target, others the source; the reward is 1 for the right class."""

    name = "paper-1-table-2"
    title = "Paper 1, Table 2, Adult: reward relative to ABSE"

    def rows(self, effort: Effort) -> Iterator[Row]:
        """As `Reproduction.rows`."""
        if not effort.adult:
            raise SpecError("missing", field="--adult", remedy="give the path of the UCI Adult data")
        whole = 4000 if effort.quick else _TARGET
        promises = _PROMISES[:1] if effort.quick else _PROMISES
        cases = []
        for part, n in (("n/4", whole // 4), ("n", whole)):
            for epsilon, aux in promises:
                facts = {"epsilon": epsilon, "eps_aux": aux, "part": part}
                baselines = ("abse", "linear", "network", "ldpmab")
                cases.append(Case(facts, _spec(effort.adult, n, epsilon), baselines))
                helped = facts | {"policy": f"{OURS}, with sources"}
                cases.append(Case(helped, _spec(effort.adult, n, epsilon, aux)))
        yield from run(cases, effort)
        for (epsilon, aux), parts in _PUBLISHED.items():
            for part, ratios in zip(("n/4", "n"), parts, strict=True):
                for name, ratio in zip(_NAMES, ratios, strict=True):
                    told = {"policy": f"published: {name}", "published": True, "reward": ratio, "ci95": 0.0}
                    if (epsilon, aux) in promises:
                        yield {"epsilon": epsilon, "eps_aux": aux, "part": part, **told}

    def draw(self, rows: list[Row]) -> Figure:
        """As `Reproduction.draw`."""
        promises = sorted({(row["epsilon"], row["eps_aux"]) for row in rows})
        figure, axes = panels(2, self.title, height=4.2)
        for axis, part in zip(axes, ("n/4", "n"), strict=True):
            policies = [policy for policy in values(rows, "policy") if policy != "abse"]
            for place, (epsilon, aux) in enumerate(promises):
                ratios = [_ratio(rows, policy, epsilon, aux, part) for policy in policies]
                at = np.arange(len(policies)) + place / (len(promises) + 1)
                axis.barh(
                    at,
                    ratios,
                    height=0.8 / len(promises),
                    color=COLOURS[place],
                    label=f"epsilon {epsilon:g}, sources {aux:g}",
                )
            axis.axvline(1.0, color="#555555", linewidth=0.8)
            axis.set_yticks(np.arange(len(policies)) + 0.3, policies if part == "n/4" else [], fontsize=7)
            axis.set_title(f"after {part}", fontsize=9)
        axes[1].legend(fontsize=6, loc="lower right", bbox_to_anchor=(1.0, 1.0))
        return figure

    def verdict(self, rows: list[Row]) -> str:
        """As `Reproduction.verdict`."""
        told = []
        for epsilon, aux in sorted({(row["epsilon"], row["eps_aux"]) for row in rows}):
            parts = []
            for part in ("n/4", "n"):
                ours = _ratio(rows, OURS, epsilon, aux, part)
                helped = _ratio(rows, f"{OURS}, with sources", epsilon, aux, part)
                paper = _ratio(rows, "published: LDPMAB", epsilon, aux, part)
                parts.append(f"{ours:.3f} ({helped:.3f} with sources; published without: {paper:.3f}) after {part}")
            told.append(f"({epsilon:g}, {aux:g}): " + ", ".join(parts))
        return "Reward relative to ABSE at (epsilon, epsilon of sources): " + "; ".join(told) + "."


def _ratio(rows: list[Row], policy: str, epsilon: float, aux: float, part: str) -> float:
    facts = {"epsilon": epsilon, "eps_aux": aux, "part": part}
    reward = mean(rows, "reward", policy=policy, **facts)[0]
    if policy.startswith("published"):
        return reward
    return reward / mean(rows, "reward", policy="abse", **facts)[0]


def _spec(path: str, n: int, epsilon: float, aux: float | None = None) -> Spec:
    adult = {"name": "adult", "path": path, "task": "income", "projected": True}
    source = {
        "name": "born-elsewhere",
        "people": _SOURCE,
        "epsilon": aux,
        "shares": [0.5, 0.5],
        "population": adult | {"cohort": "source"},
    }
    return parse_spec(
        {
            "experiment": {"name": "adult", "arms": ["low", "high"], "horizon": n, "round_size": 100},
            "context": {"features": {name: {"low": 0.0, "high": 1.0} for name in ("c1", "c2", "c3")}},
            "privacy": {"model": "local", "epsilon": epsilon},
            "algorithm": {"name": "partition"},
            "sources": [] if aux is None else [source],
            "population": adult | {"cohort": "target"},
        }
    )
