"""High-dimensional bandits (paper 3, PrivateLASSO): rewards are linear in few of an arm's many features.

Here are the spec, and the policy with what a device does.
"""

from typing import Final

from privateer.algorithms import Algorithm
from privateer.algorithms.sparse.policy import SparsePolicy
from privateer.algorithms.sparse.spec import SparseSpec

ALGORITHM: Final = Algorithm(SparseSpec, SparsePolicy)
