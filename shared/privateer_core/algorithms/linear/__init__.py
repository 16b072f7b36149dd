"""Linear and generalized linear bandits (Zheng et al. 2020, Algorithms 3 and 5): every arm has a parameter of its own.

Here are the spec, and the policy with what a device does.
"""

from typing import Final

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.spec import LinearSpec

ALGORITHM: Final = Algorithm(LinearSpec, LinearPolicy)
