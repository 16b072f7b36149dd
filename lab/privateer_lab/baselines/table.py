"""Baselines beside the experiment's own policy, for people."""

from typing import Any

from rich.table import Table

from privateer_lab.output import readable, screen


def print_baselines(result: dict[str, Any]) -> None:
    """Print a row for each of a simulation's ``baselines``, under one for the policy itself; nothing without them."""
    rows = result.get("baselines")
    if not rows:
        return
    table = Table(title="baselines", title_justify="left")
    table.add_column("policy", style="bold")
    for heading in ("regret", "95 % interval", "worst seed", "reward"):
        table.add_column(heading, justify="right")
    for name, row in {result["experiment"]: {**result, "leaks": False}, **rows}.items():
        interval = "" if row["regret_ci95"] is None else f"± {readable(row['regret_ci95'])}"
        label = f"{name} [red](leaks: not private)[/]" if row["leaks"] else name
        figures = (readable(row["regret_mean"]), interval, readable(row["regret_worst"]), readable(row["reward_mean"]))
        table.add_row(label, *figures)
    screen.print(table)
