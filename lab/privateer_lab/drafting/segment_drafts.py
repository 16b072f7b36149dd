"""The segments of a test, by columns of a table."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from privateer_lab.drafting.column_profiles import TableRows, shortened
from privateer_lab.drafting.feature_drafts import rounded
from privateer_lab.drafting.toml_values import key_of, toml

_QUARTERS: Final = (0.25, 0.5, 0.75)


def segment_lines(rows: TableRows, segments: Sequence[str], confirm: list[str]) -> list[str]:
    """Return the section of segments, with the quarters of numbers as cuts; nothing without any."""
    if not segments:
        return []
    lines = []
    for name in segments:
        column = rows.column(name)
        if column.numbers is None or column.is_boolean:
            continue
        cuts = sorted({rounded(one) for one in np.quantile(column.numbers, _QUARTERS).tolist()})
        lines.append(f"{key_of(name)} = {toml(cuts)}  # from the data: confirm that it may be public")
        confirm.append(f"{shortened(name)}: the cuts {toml(cuts)} of its segments are from the data")
    return ["[segments]", f"by = {toml(list(segments))}", *(["", "[segments.cuts]", *lines] if lines else []), ""]
