"""Spec and policy of the additive bandit for tables.

The expected reward of an arm is a sum of shape functions, one a feature.
"""

from typing import Final

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.additive.policy import AdditivePolicy
from privateer_core.algorithms.additive.spec import AdditiveSpec

ALGORITHM: Final = Algorithm(AdditiveSpec, AdditivePolicy)
