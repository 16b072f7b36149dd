"""The lab: people who are simulated, plans, off-policy estimates and pictures; ``import privateer_lab as lab``.

The command line, the load driver and the audit are in here, too. The lab may import every role; nothing imports it.
docs/notebook.md has the names below; each is imported when it is first used.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

# Work is shared out by processes, and matrices are small: threads of linear algebra would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if TYPE_CHECKING:
    from privateer_lab.finished_test import FinishedTest, analyze
    from privateer_lab.notebook import plot
    from privateer_lab.notebook.evaluation import Evaluation, evaluate
    from privateer_lab.notebook.planned import Planned, plan
    from privateer_lab.notebook.policies import LoadedPolicy, policy
    from privateer_lab.notebook.replayed import Replayed, replay
    from privateer_lab.notebook.results import Found, History, history, result
    from privateer_lab.notebook.simulated import Simulated, simulate, sweep
    from privateer_lab.notebook.sizes import detectable, sample_size
    from privateer_lab.notebook.specs import spec, spec_from
    from privateer_lab.notebook.tabular import ResultTable

_PLACES: Final = {
    "Evaluation": "notebook.evaluation",
    "FinishedTest": "finished_test",
    "Found": "notebook.results",
    "History": "notebook.results",
    "Planned": "notebook.planned",
    "LoadedPolicy": "notebook.policies",
    "Replayed": "notebook.replayed",
    "Simulated": "notebook.simulated",
    "ResultTable": "notebook.tabular",
    "analyze": "finished_test",
    "detectable": "notebook.sizes",
    "evaluate": "notebook.evaluation",
    "history": "notebook.results",
    "plan": "notebook.planned",
    "policy": "notebook.policies",
    "replay": "notebook.replayed",
    "result": "notebook.results",
    "sample_size": "notebook.sizes",
    "simulate": "notebook.simulated",
    "spec": "notebook.specs",
    "spec_from": "notebook.specs",
    "sweep": "notebook.simulated",
}
"""The module of this package that has each name."""

__all__ = [
    "Evaluation",
    "FinishedTest",
    "Found",
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
    if name == "plot":
        return import_module("privateer_lab.notebook.plot")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"privateer_lab.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
