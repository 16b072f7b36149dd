"""The doctor's look at the plug-ins that are installed, and at whether experiments have theirs."""

from collections.abc import Iterable
from typing import Final

import msgspec

from privateer_core.algorithms import ALGORITHMS, parse_spec
from privateer_core.errors import PluginError
from privateer_lab.doctor.checks import Checkup
from privateer_server.algorithms import LEARNERS, learner_for
from privateer_server.store.records import ExperimentRecord

_CHECK: Final = "algorithms"


def check_algorithms(found: Checkup) -> None:
    """Import every algorithm and its learner."""
    problems = [*ALGORITHMS.problems(), *LEARNERS.problems()]
    for problem in problems:
        found.fail(_CHECK, problem.detail, problem.remedy or "")
    if not problems:
        found.ok(_CHECK, f"{len(ALGORITHMS)} are installed")


def check_experiments(found: Checkup, experiments: Iterable[ExperimentRecord]) -> None:
    """Say which experiments stand still because their algorithm cannot be used here."""
    for one in experiments:
        try:
            learner_for(parse_spec(msgspec.json.decode(one.spec)))
        except PluginError as problem:
            found.fail(_CHECK, f"{one.name} stands still: {problem}", problem.remedy or "")
