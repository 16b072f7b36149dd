"""Paper 1, Table 2, its rows of the Adult data: reward relative to a tree that knows everything (ABSE)."""

from collections.abc import Iterator
from itertools import product
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from privateer_core.spec.spec import Spec
from privateer_lab.pages.plots import COLOURS, panels
from privateer_papers.paper_1.setting import HONEST, in_hundreds
from privateer_papers.reproduction import OURS, Compared, Effort, Reproduction, ReproductionCase, Row, Rows, run

_HELPED: Final = f"{OURS}, with sources"
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
_PARTS: Final = {"n/4": 4, "n": 1}


def _rows(effort: Effort) -> Iterator[Row]:
    people, promises = (4000, [(1.0, 1.0)]) if effort.quick else (_TARGET, list(_PUBLISHED))
    cases = []
    for (part, share), (epsilon, aux) in product(_PARTS.items(), promises):
        facts, n = {"epsilon": epsilon, "eps_aux": aux, "part": part}, people // share
        cases.append(
            ReproductionCase(facts, _spec(effort.data["adult"], n, epsilon), ("abse", "linear", "network", HONEST))
        )
        cases.append(ReproductionCase({**facts, "policy": _HELPED}, _spec(effort.data["adult"], n, epsilon, aux)))
    yield from run(cases, effort)
    for epsilon, aux in promises:
        for part, ratios in zip(_PARTS, _PUBLISHED[epsilon, aux], strict=True):
            for name, ratio in zip(_NAMES, ratios, strict=True):
                read = {"policy": f"published: {name}", "published": True, "reward": ratio, "ci95": 0.0}
                yield {"epsilon": epsilon, "eps_aux": aux, "part": part, **read}


def _spec(path: str, n: int, epsilon: float, aux: float | None = None) -> Spec:
    """Return the spec of people born in the United States, with the others as a source; 1 for the right class."""
    adult = {"name": "adult", "path": path, "task": "income", "projected": True}
    source = {"name": "born-elsewhere", "people": _SOURCE, "epsilon": aux, "shares": [0.5, 0.5]}
    return in_hundreds(
        {"name": "adult", "arms": ["low", "high"], "horizon": n},
        ("c1", "c2", "c3"),
        {"model": "local", "epsilon": epsilon},
        [] if aux is None else [{**source, "population": {**adult, "cohort": "source"}}],
        {**adult, "cohort": "target"},
    )


def _draw(title: str, rows: Rows) -> Figure:
    promises = sorted(rows.by("epsilon", "eps_aux"))
    policies = [policy for policy in rows.values("policy") if policy != "abse"]
    figure, axes = panels(2, title, height=4.2)
    for axis, part in zip(axes, _PARTS, strict=True):
        for place, (epsilon, aux) in enumerate(promises):
            ratios = [_ratio(rows, policy, epsilon, aux, part) for policy in policies]
            at = np.arange(len(policies)) + place / (len(promises) + 1)
            label = f"epsilon {epsilon:g}, sources {aux:g}"
            axis.barh(at, ratios, height=0.8 / len(promises), color=COLOURS[place], label=label)
        axis.axvline(1.0, color="#555555", linewidth=0.8)
        middle = np.arange(len(policies)) + (len(promises) - 1) / (len(promises) + 1) / 2
        axis.set_yticks(middle, policies if part == "n/4" else [], fontsize=7)
        axis.set_title(f"after {part}", fontsize=9)
    axes[1].legend(fontsize=6, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return figure


def _verdict(rows: Rows) -> str:
    sentences = []
    for epsilon, aux in sorted(rows.by("epsilon", "eps_aux")):
        parts = []
        for part in _PARTS:
            policies = (OURS, _HELPED, "published: LDPMAB")
            ours, helped, paper = (_ratio(rows, policy, epsilon, aux, part) for policy in policies)
            parts.append(f"{ours:.3f} ({helped:.3f} with sources; published without: {paper:.3f}) after {part}")
        sentences.append(f"({epsilon:g}, {aux:g}): " + ", ".join(parts))
    return "Reward relative to ABSE at (epsilon, epsilon of sources): " + "; ".join(sentences) + "."


def _ratio(rows: Rows, policy: str, epsilon: float, aux: float, part: str) -> float:
    cell = rows.where(epsilon=epsilon, eps_aux=aux, part=part)
    reward = cell.where(policy=policy).mean("reward")[0]
    return reward if policy.startswith("published") else reward / cell.where(policy="abse").mean("reward")[0]


def _sentence(rows: Rows) -> str:
    cells = sorted(rows.by("epsilon", "eps_aux"))
    ours, paper = (
        [_ratio(rows, policy, epsilon, aux, "n") for epsilon, aux in cells] for policy in (OURS, "published: LDPMAB")
    )
    return (
        f"Without other data ours earns {min(ours):.3f} to {max(ours):.3f} of ABSE's reward, where the paper prints "
        f"{min(paper):.3f} to {max(paper):.3f}."
    )


def _compared(rows: Rows) -> list[Compared]:
    found = []
    for (epsilon, aux), part in product(sorted(rows.by("epsilon", "eps_aux")), _PARTS):
        for name, here, ours in (("without", HONEST, OURS), ("with", None, _HELPED)):
            paper = f"published: {_NAMES[name == 'without']}"
            ratios = [
                f"{_ratio(rows, policy, epsilon, aux, part):.3f}" if policy else "" for policy in (paper, here, ours)
            ]
            found.append(Compared(f"({epsilon:g}, {aux:g}), {name} sources, after {part}", *ratios))
    return found


TABLE_2: Final = Reproduction(
    "paper-1-table-2",
    "Paper 1, Table 2, Adult: reward relative to ABSE",
    _rows,
    _draw,
    _verdict,
    _sentence,
    _compared,
    minutes=20,
    needs="adult",
)
