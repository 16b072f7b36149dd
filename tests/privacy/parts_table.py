"""The table of what half the noise of each part is proved to cost: ``python -m tests.privacy.parts_table``.

It attacks every part as it is and with half its noise, and writes the table into docs/privacy/audit-parts.md.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from privateer_lab.audit.case import MechanismPart, PartResult
from privateer_lab.audit.suite import FALSE_ALARM, all_parts
from tests.privacy.planted_parts import PLANTED

PAGE = Path(__file__).parents[2] / "docs" / "privacy" / "audit-parts.md"
BEGIN, END = "<!-- parts: python -m tests.privacy.parts_table -->\n", "<!-- end of parts -->\n"
HEAD = "| mechanism | part | claimed | proved | with half the noise |\n|---|---|---|---|---|\n"
ALARM = FALSE_ALARM / 300
"""Of a bound, or of a law: about that of the whole command."""


def claim(part: MechanismPart) -> str:
    """The claim of a part alone."""
    if part.epsilon is None:
        return "its law"
    return f"({part.epsilon:.3g}, {part.delta:g})" if part.delta else f"{part.epsilon:.3g}"


def format_result(part_result: PartResult) -> str:
    """Format the proved epsilon, or the p-value of the law if there is no proof of an epsilon."""
    if part_result.bounds is None:
        return f"p = {part_result.p_value:.0g}"
    return f"{part_result.bounds.lower_bound:z.2f}"


def row(part: MechanismPart) -> str:
    """Attack a part twice."""
    part_results = []
    for factor in (1, 2):
        with pytest.MonkeyPatch.context() as patch:
            if factor > 1:
                PLANTED[part.mechanism, part.name][0](patch, factor)
            part_results.append(part.examine(ALARM))
    cells = [part.mechanism, part.name, claim(part), *map(format_result, part_results)]
    return f"| {' | '.join(cells)} |\n"


def rows(make: Callable[[MechanismPart], str] = row) -> Iterator[str]:
    """Return all rows."""
    return map(make, all_parts())


def read_table() -> list[list[str]]:
    """Return the cells of the table in the page."""
    table = re.search(f"{re.escape(BEGIN)}(.*?){re.escape(END)}", PAGE.read_text(), re.DOTALL)
    assert table, "docs/privacy/audit-parts.md has the table between its marks"
    assert table[1].startswith(HEAD)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1][len(HEAD) :].splitlines()]


def main() -> None:
    """Write the table."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    lines = []
    for line in rows():
        print(line, end="", flush=True)
        lines.append(line)
    PAGE.write_text(f"{before}{BEGIN}{HEAD}{''.join(lines)}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
