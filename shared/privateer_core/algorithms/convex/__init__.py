"""Bandits on a convex set (Zheng et al. 2020): people get points near a public centre, and report one number.

Rewards are concave: a reward is what is left after a convex loss.
"""

from typing import Final

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.convex.policy import ConvexPolicy
from privateer_core.algorithms.convex.spec import ConvexSpec

ALGORITHM: Final = Algorithm(ConvexSpec, ConvexPolicy)
