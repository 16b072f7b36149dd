"""Spec and policy of linear and generalized linear bandits (Zheng et al. 2020, Algorithms 3 and 5).

Every arm has a parameter of its own.
"""

from typing import Final

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.spec import LinearSpec

ALGORITHM: Final = Algorithm(LinearSpec, LinearPolicy)
