"""Reference policies, found by name: what others do with the same people. One file a policy (docs/references.md)."""

from typing import Final

from privateer.errors import SpecError
from privateer.experiment import Spec
from privateer_lab.baselines.abse import Abse
from privateer_lab.baselines.base import Baseline
from privateer_lab.baselines.constant import Constant
from privateer_lab.baselines.ldpmab import Ldpmab
from privateer_lab.baselines.leaky import Leaky
from privateer_lab.baselines.linear import Linear
from privateer_lab.baselines.network import Network
from privateer_lab.baselines.oracle import Oracle
from privateer_lab.baselines.tree import Tree
from privateer_lab.baselines.uniform import Uniform

BASELINES: Final[dict[str, type[Baseline]]] = {
    "uniform": Uniform,
    "constant": Constant,
    "oracle": Oracle,
    "tree": Tree,
    "abse": Abse,
    "linear": Linear,
    "network": Network,
    "ldpmab": Ldpmab,
    "leaky": Leaky,
}


def chosen(names: list[str], spec: Spec) -> list[str]:
    """The references that these names ask for, without repetition; ``all`` is every one that the spec has room for.

    Raises
    ------
    SpecError
        If a name is unknown, or asks for local privacy where the spec promises no epsilon.
    """
    possible = [name for name, made in BASELINES.items() if spec.privacy.epsilon is not None or not made.private]
    for name in names:
        if name != "all" and name not in BASELINES:
            known = ", ".join(BASELINES)
            raise SpecError(f"no reference {name!r}", field="--reference", remedy=f"choose from all, {known}")
        if name != "all" and name not in possible:
            raise SpecError(
                f"{name} is made for an epsilon, and the spec promises none",
                field="--reference",
                remedy="set privacy.model and privacy.epsilon, or leave it out",
            )
    return [name for name in possible if name in names or "all" in names]
