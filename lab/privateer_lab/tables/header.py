"""The names of a table's columns."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from privateer_lab.tables import TABLE, refused, shortened
from privateer_lab.tables.marks import number_of

COLUMNS_MAX: Final = 2000
"""Most columns of a table: each is read, and what it says is compared with the others."""
_ROW_NAMES: Final = "row"
"""What a first column without a name is called: data frames are written so, with their row numbers."""
_DISTINCT: Final = "begin it with a row of distinct names, one a column"


def checked_header(cells: Sequence[str], source: str, field: str = TABLE, *, is_file: bool = True) -> tuple[str, ...]:
    """Return the names of columns, those that have none by their place."""
    names = [cell.strip() for cell in cells]
    if not any(names):
        raise refused(f"{source} {'is empty: it has no header' if is_file else 'has no columns'}", _DISTINCT, field)
    if len(names) > COLUMNS_MAX:
        message = f"{source} has {len(names):,} columns, and at most {COLUMNS_MAX:,} are read"
        raise refused(message, "write those that you need into a table of their own", field)
    if is_file and not any(name and math.isnan(number_of(name)) for name in names):
        raise refused(f"{source} has no header: its first row has numbers", _DISTINCT, field)
    for place, name in enumerate(names):
        if not name:
            names[place] = f"column {place + 1}" if place or _ROW_NAMES in names else _ROW_NAMES
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        message = f"{source} has two columns of the same name, {shortened(name)!r}, or no header"
        raise refused(message, _DISTINCT, field)
    return tuple(names)
