"""The section of a draft's rewards, from the outcomes of a log's rows."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_lab.drafting.feature_drafts import CONFIRM_REMARK, rounded
from privateer_lab.drafting.toml_values import to_toml
from privateer_lab.tables import shorten
from privateer_lab.tables.rewards import (
    HIGHER_REMARK,
    LOWER_REMARK,
    compute_reward_bounds,
    is_yes_or_no,
    reverse_rewards,
    round_off_errors,
)

_MAX_CLIPPED_SHARE: Final = 0.05
"""Part of the rewards' sum beyond bounds from the data above which the draft warns."""
_CLIPPED_REMARK: Final = (
    "All that is said of options is said of clipped rewards, and another option may be the best without. Choose the "
    "bounds yourself with --bounds: wider ones cost people, since noise grows with them."
)


def format_reward_section(
    rewards: NDArray[np.float64] | None,
    name: str | None,
    given_bounds: tuple[float, float] | None,
    notes: list[str],
    lower_is_better: bool,
) -> tuple[list[str], list[str], NDArray[np.float64] | None]:
    """Format a log's reward section; return it, sentences on bounds and moments, and rewards, more being better."""
    if name is None or rewards is None:
        return [], [], None
    is_binary = given_bounds is None and is_yes_or_no(rewards)
    label, bounds = shorten(name), compute_reward_bounds(rewards, given_bounds)
    if not is_binary:
        clipping = bounds.describe_clipping(rewards, label)
        is_distorted = bounds.is_from_data and bounds.compute_clipped_share(rewards) > _MAX_CLIPPED_SHARE
        notes.append(f"Warning: {clipping} {_CLIPPED_REMARK}" if is_distorted else clipping)
    if not lower_is_better:
        notes.append(HIGHER_REMARK)
    else:
        rewards, bounds = reverse_rewards(rewards, bounds, is_binary=is_binary)
        other = "no where it was yes" if is_binary else "its negative"
        notes.append(f"{LOWER_REMARK.format(reward=label)}: the reward of the spec is {other}, and apps report that.")
    low, high = bounds.low, bounds.high
    inside = np.clip(rewards, low, high)
    if is_binary:
        mean = float(inside.mean())
        rate = rounded(mean) if mean < 0.5 else round_off_errors(1 - rounded(1 - mean))  # of what is rare
        share = "without it, which counts as 1" if lower_is_better else "who say yes"
        confirmation = f"{label}: base_rate = {rate:g} of [reward], the share {share}, is from the data"
        section = ["[reward]" + CONFIRM_REMARK, f"base_rate = {rate:g}", ""]
        return section, [confirmation], rewards
    mean, deviation = rounded(float(inside.mean())), rounded(float(inside.std()))
    stats = {"base_rate": mean} if low < mean < high else {}
    if 0 < deviation <= math.sqrt(max(0.0, (mean - low) * (high - mean))):
        stats["standard_deviation"] = deviation
    lines = [f"{key} = {to_toml(value)}  # after clipping, from the data" for key, value in stats.items()]
    keys = [*(["low", "high"] if bounds.is_from_data else []), *stats]
    confirmation = f"{label}: {', '.join(keys)} of [reward] are from the data; its bounds: {bounds.words}"
    remark = CONFIRM_REMARK if keys else ""
    section = ["[reward]" + remark, 'kind = "numeric"', f"low = {to_toml(low)}", f"high = {to_toml(high)}", *lines, ""]
    return section, [confirmation] if keys else [], rewards
