"""Vectors of rounds that measure what choosing by context gains."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from privateer_core.policies.gain_policy import N_KEYS, GainPolicy
from privateer_core.privacy.terms import calibrate, uninvited_terms
from privateer_core.spec.arms import ArmsSpec

TABLE: Final[dict[str, Any]] = {
    "name": "test",
    "arms": ["a", "b", "c"],
    "horizon": 20_000,
    "round_size": 2000,
    "evaluation_fraction": 0.1,
}
FEWER: Final = TABLE | {"arms": ["a", "b", "c", "d"], "retired_arms": ["d"]}
LIMITS: Final[dict[str, Any]] = {
    "epsilon": None,
    "delta": 0.2,
    "arm_visibility": "hidden",
    "local_epsilon": 20.0,
    "allow_central": True,
}
"""Of a device that allows all; no number stands for infinity."""
_SEED: Final = 2**62 + 99


def grown_gain(grown: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function that makes such a round's policy, about a policy that is ``grown`` from the first round's."""

    def make_policy(policy: Any, spec: ArmsSpec) -> Any:
        inside = grown(policy, spec)
        terms = calibrate(spec.privacy, spec.gain_people, spec.gain_question(N_KEYS, _SEED))
        quiet = uninvited_terms(spec.privacy, spec.typical_question())
        if layout := getattr(inside.terms.mechanism, "layout", None):
            quiet = replace(quiet, mechanism=msgspec.structs.replace(quiet.mechanism, layout=layout))
        quietly = replace(inside, terms=quiet)
        return GainPolicy(policy.version, 1, _SEED, np.array(spec.playable), quietly, terms)

    return make_policy


def lies(body: bytes) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """List changes of round and policy by which no round measures a gain."""
    policy = msgspec.msgpack.decode(msgspec.msgpack.decode(body)[2])
    layout = "policy.terms.mechanism.layout.thresholds"
    changes_by_name = {
        "a single option that nobody gets": {"policy.single": 3},
        "a single option that is none": {"policy.single": -2},
        "no option that is known to be best": {"policy.single": -1},
        "a seed below 0": {"policy.seed": -1},
        "people who may get what is retired": {"policy.playable": np.ones(5, bool)},
        "a policy of another version": {"policy.by_context.version": 3},
        "a policy that asks people, too": {"policy.by_context.terms.batch_size": 2000},
        "five keys": {layout: np.zeros((5, 0), np.uint32)},
        "keys by coins": {layout: np.full((4, 1), 9, np.uint32)},
        "another mechanism of the algorithm": {"policy.terms.mechanism": policy["by_context"]["terms"]["mechanism"]},
    }
    return [(name, changes, LIMITS) for name, changes in changes_by_name.items()]
