"""The lab: simulations, plans, off-policy estimates and plots; ``import privateer_lab as lab``.

It also has the command line, the load driver and the audit. The lab may import every role; no role imports the lab.
docs/notebook.md describes the names below, which are imported at their first use.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

# Work is divided among processes, and matrices are small: threads of linear algebra would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if TYPE_CHECKING:
    from privateer_lab.analysis.ab_test_analysis import FinishedTest, analyze
    from privateer_lab.notebook import plot
    from privateer_lab.notebook.evaluation import Evaluation, evaluate
    from privateer_lab.notebook.planned import Planned, plan
    from privateer_lab.notebook.policies import LoadedPolicy, policy
    from privateer_lab.notebook.replayed import Replayed, replay
    from privateer_lab.notebook.results import ExperimentResult, History, history, result
    from privateer_lab.notebook.simulated import Simulated, simulate, sweep
    from privateer_lab.notebook.sizes import detectable, sample_size
    from privateer_lab.notebook.specs import spec, spec_from
    from privateer_lab.notebook.tabular import ResultTable

_MODULES: Final = {
    "analysis.ab_test_analysis": ("FinishedTest", "analyze"),
    "notebook.evaluation": ("Evaluation", "evaluate"),
    "notebook.planned": ("Planned", "plan"),
    "notebook.policies": ("LoadedPolicy", "policy"),
    "notebook.replayed": ("Replayed", "replay"),
    "notebook.results": ("ExperimentResult", "History", "history", "result"),
    "notebook.simulated": ("Simulated", "simulate", "sweep"),
    "notebook.sizes": ("detectable", "sample_size"),
    "notebook.specs": ("spec", "spec_from"),
    "notebook.tabular": ("ResultTable",),
}
"""The exported names by module."""

__all__ = [
    "Evaluation",
    "ExperimentResult",
    "FinishedTest",
    "History",
    "LoadedPolicy",
    "Planned",
    "Replayed",
    "ResultTable",
    "Simulated",
    "analyze",
    "detectable",
    "evaluate",
    "history",
    "plan",
    "plot",
    "policy",
    "replay",
    "result",
    "sample_size",
    "simulate",
    "spec",
    "spec_from",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import a public name, or `plot`, on first use; raise AttributeError for other names."""
    if name == "plot":
        return import_module("privateer_lab.notebook.plot")
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"privateer_lab.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
