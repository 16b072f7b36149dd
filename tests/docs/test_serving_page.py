"""The page on what services do themselves: a row for each module, and directives that the proxy's file has."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text()
MODULES = ROOT / "shared" / "privateer_core" / "serving"


def first_cells(title: str) -> set[str]:
    """What is set as code in the first column of the table under a title."""
    rows = [line for line in PAGE.partition(title)[2].partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}


def test_every_module_says_why_no_proxy_does_it() -> None:
    modules = {str(path.relative_to(MODULES)) for path in MODULES.rglob("*.py") if path.name != "__init__.py"}
    assert first_cells("# What services do themselves") == modules


def test_the_proxys_file_has_every_directive_of_the_second_line() -> None:
    file = (ROOT / "deploy" / "proxy" / "nginx.conf").read_text()
    named = {directive.split()[0] for directive in first_cells("## Limits at a front proxy")}
    assert len(named) >= 10
    assert not {name for name in named if not re.search(rf"^\s*{name} ", file, re.MULTILINE)}
