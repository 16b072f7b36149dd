"""Spec and policy of bandits on a convex set (Zheng et al. 2020).

Participants get points near a public centre, and report a number. Rewards are concave: they are minus a convex loss.
"""

from typing import Final

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.convex.policy import ConvexPolicy
from privateer_core.algorithms.convex.spec import ConvexSpec

ALGORITHM: Final = Algorithm(ConvexSpec, ConvexPolicy)
