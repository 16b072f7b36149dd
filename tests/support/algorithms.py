"""Which of the installed algorithms tests are about."""

from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.privacy.trust import TIGHT


def _runs(name: str) -> bool:
    return all(spec.privacy.trust.calibration == TIGHT for spec in algorithm(name).spec.instances().values())


RUN = [name for name in ALGORITHMS if _runs(name)]
"""Those that servers and devices run; the others are for simulation alone."""
