"""Baselines beside the experiment's own policy, for people."""

from typing import Any

from privateer_lab.cli.output import print_rows
from privateer_lab.figures import readable


def print_baselines(result: dict[str, Any]) -> None:
    """Print a row for each of a simulation's ``baselines``, under one for the policy itself; nothing without them."""
    if baselines := result.get("baselines"):
        policies = {result["experiment"]: {**result, "leaks": False}, **baselines}
        print_rows("baselines", [_row(name, figures) for name, figures in policies.items()])


def _row(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    return {
        "policy": f"{name} (leaks: not private)" if figures["leaks"] else name,
        "regret": figures["regret_mean"],
        "95 % interval": "" if figures["regret_ci95"] is None else f"± {readable(figures['regret_ci95'])}",
        "worst seed": figures["regret_worst"],
        "reward": figures["reward_mean"],
    }
