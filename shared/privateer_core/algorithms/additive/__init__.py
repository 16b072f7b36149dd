"""An additive bandit for tables: of every arm a sum of shape functions, one a feature.

Here are the spec, and the policy with what a device does.
"""

from typing import Final

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.additive.policy import AdditivePolicy
from privateer_core.algorithms.additive.spec import AdditiveSpec

ALGORITHM: Final = Algorithm(AdditiveSpec, AdditivePolicy)
