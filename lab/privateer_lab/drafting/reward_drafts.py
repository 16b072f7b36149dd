"""The rewards of a draft: their section of the spec, from what came of each row's option."""

import math

import numpy as np
from numpy.typing import NDArray

from privateer_lab.drafting.feature_drafts import rounded
from privateer_lab.drafting.toml_values import toml
from privateer_lab.tables import shortened
from privateer_lab.tables.rewards import HIGHER, LOWER, is_yes_or_no, reward_bounds, tidy, turned


def reward_section(
    rewards: NDArray[np.float64] | None,
    name: str | None,
    given: tuple[float, float] | None,
    notes: list[str],
    lower_is_better: bool,
) -> tuple[list[str], list[str], NDArray[np.float64] | None]:
    """Return the section of a log's rewards, what of it somebody has to confirm, and rewards of which more is better.

    Of numbers it says where their bounds come from, and how much they vary between them.
    """
    if name is None or rewards is None:
        return [], [], None
    is_binary, what, bounds = given is None and is_yes_or_no(rewards), shortened(name), reward_bounds(rewards, given)
    if not is_binary:
        notes.append(bounds.clipped(rewards, what))
    if not lower_is_better:
        notes.append(HIGHER)
    else:
        rewards, bounds = turned(rewards, bounds, is_binary=is_binary)
        instead = "no where it was yes" if is_binary else "its negative"
        notes.append(f"{LOWER.format(reward=what)}: the reward of the spec is {instead}, and apps report that.")
    low, high = bounds.low, bounds.high
    inside = np.clip(rewards, low, high)
    if is_binary:
        mean = float(inside.mean())
        rate = rounded(mean) if mean < 0.5 else tidy(1 - rounded(1 - mean))  # of what is rare
        share = "without it, which counts as 1" if lower_is_better else "who say yes"
        said = f"{what}: base_rate = {rate:g} of [reward], the share {share}, is from the data"
        return (
            ["[reward]  # from the data: confirm that it may be public", f"base_rate = {rate:g}", ""],
            [said],
            rewards,
        )
    told = {"base_rate": rounded(float(inside.mean())), "deviation": rounded(float(inside.std()))}
    most = math.sqrt(max(0.0, (told["base_rate"] - low) * (high - told["base_rate"])))
    usual = {"base_rate": low < told["base_rate"] < high, "deviation": 0 < told["deviation"] <= most}
    lines = [f"{key} = {toml(one)}  # after clipping, from the data" for key, one in told.items() if usual[key]]
    keys = (["low", "high"] if bounds.is_from_data else []) + [key for key in told if usual[key]]
    said = f"{what}: {', '.join(keys)} of [reward] are from the data; its bounds: {bounds.words}"
    remark = "  # from the data: confirm that it may be public" if keys else ""
    section = ["[reward]" + remark, 'kind = "numeric"', f"low = {toml(low)}", f"high = {toml(high)}", *lines, ""]
    return section, [said] if keys else [], rewards
