"""High-dimensional bandits (paper 3, PrivateLASSO): rewards are linear in few of an arm's many features.

Here are the spec, and the policy with what a device does.
"""

from typing import Final

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.sparse.policy import SparsePolicy
from privateer_core.algorithms.sparse.spec import SparseSpec

ALGORITHM: Final = Algorithm(SparseSpec, SparsePolicy)
