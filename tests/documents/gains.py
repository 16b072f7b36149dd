"""Vectors of rounds that measure what choosing by context gains."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from privateer_core.policies.gain_policy import KEYS, GainPolicy
from privateer_core.privacy.terms import calibrate, nobody_asked
from privateer_core.spec.arms import ArmsSpec

TABLE: Final[dict[str, Any]] = {
    "name": "test",
    "arms": ["a", "b", "c"],
    "horizon": 20_000,
    "round_size": 2000,
    "gain_share": 0.1,
}
FEWER: Final = TABLE | {"arms": ["a", "b", "c", "d"], "retired": ["d"]}
LIMITS: Final[dict[str, Any]] = {
    "epsilon": None,
    "delta": 0.2,
    "arms": "hidden",
    "local_epsilon": 20.0,
    "curator": True,
}
"""Of a device that allows all; no number stands for infinity."""
_SEED: Final = 2**62 + 99


def grown_gain(grown: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return what makes the policy of such a round, about a policy that is ``grown`` from the first round's."""

    def made(policy: Any, spec: ArmsSpec) -> Any:
        inside = grown(policy, spec)
        asked = calibrate(spec.privacy, spec.gain_people, spec.gain_question(KEYS, _SEED))
        quiet = nobody_asked(spec.privacy, spec.usual_question())
        if layout := getattr(inside.terms.mechanism, "layout", None):
            quiet = replace(quiet, mechanism=msgspec.structs.replace(quiet.mechanism, layout=layout))
        quietly = replace(inside, terms=quiet)
        return GainPolicy(policy.version, 1, _SEED, np.array(spec.playable), quietly, asked)

    return made


def lies(body: bytes) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Changes of round and policy by which nobody measures anything."""
    told = msgspec.msgpack.decode(msgspec.msgpack.decode(body)[2])
    layout = "policy.terms.mechanism.layout.thresholds"
    asked = {
        "a single option that nobody gets": {"policy.single": 3},
        "a single option that is none": {"policy.single": -2},
        "no option that is known to be best": {"policy.single": -1},
        "a seed below 0": {"policy.seed": -1},
        "people who may get what is retired": {"policy.playable": np.ones(5, bool)},
        "a policy of another version": {"policy.by_context.version": 3},
        "a policy that asks people, too": {"policy.by_context.terms.batch": 2000},
        "five keys": {layout: np.zeros((5, 0), np.uint32)},
        "keys by coins": {layout: np.full((4, 1), 9, np.uint32)},
        "another mechanism of the algorithm": {"policy.terms.mechanism": told["by_context"]["terms"]["mechanism"]},
    }
    return [(what, changes, LIMITS) for what, changes in asked.items()]
