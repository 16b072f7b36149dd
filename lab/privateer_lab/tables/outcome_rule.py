"""How each cell of the reward's column counts: a public rule, which looks at one row at a time."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from privateer_core.errors import SpecError
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import TableRows
from privateer_lab.tables.marks import number_of

_UNIT: Final = (0.0, 1.0)
_LARGEST: Final = 1e300


@dataclass(frozen=True)
class OutcomeRule:
    """How the cells of a column are outcomes."""

    name: str  # the column
    # the least and the largest outcome that count; None: the rows decide, or with a promise just 0 and 1 count
    bounds: tuple[float, float] | None
    yes: str | None  # the text that is 1, while others are 0; None: texts are numbers, or yes and no
    # what a gap counts as: ``low``, ``high`` or a number; None: nothing, so that its row counts nowhere
    missing_as: str | float | None
    # whether no cell may decide how others count, so that one that is no outcome is a gap, and none is refused
    is_private: bool

    def __post_init__(self) -> None:
        if self.yes is not None and self.bounds is not None:
            detail = "makes outcomes 1 and 0, which have no other bounds"
            raise SpecError(detail, field="--yes", remedy="leave --bounds out")
        low, high = self.bounds or (_UNIT if self.is_private or self.yes is not None else (-_LARGEST, _LARGEST))
        if self.missing_as is not None and not low <= self._number(low, high) <= high:
            remedy = f"write low, high or a number within {'the bounds' if self.bounds else 'those of the reward'}"
            raise SpecError("must be a value of the reward", field="--missing-as", remedy=remedy)

    def _number(self, low: float, high: float) -> float:
        """Return the number that a gap counts as; NaN if it is none."""
        text = str(self.missing_as)
        return {"low": low, "high": high}.get(text, number_of(text))

    @property
    def is_numeric(self) -> bool:
        """Whether outcomes are numbers by the rule alone, whatever the rows have."""
        return self.bounds is not None or (self.missing_as is not None and self._number(*_UNIT) not in _UNIT)

    def applied(self, rows: TableRows) -> TableRows:
        """Return rows whose outcomes are those of the rule; with a promise, cells that are none are gaps."""
        column = rows.column(self.name)
        if self.yes is not None:
            is_yes = np.array([text == self.yes for text in column.values], np.int64)
            places = np.where(column.places < 0, -1, np.append(is_yes, 0)[column.places])
            column = DataColumn(self.name, ("0", "1"), places)
        if self.is_private:
            is_outcome = np.isfinite(column.outcomes) if self.bounds else np.isin(column.outcomes, _UNIT)
            column = replace(column, places=np.where(is_outcome, column.places, -1))
        if self.missing_as is not None:
            finite = column.outcomes[np.isfinite(column.outcomes)]
            is_unit = self.is_private or self.yes is not None or not len(finite)
            ends = self.bounds or (_UNIT if is_unit else (finite.min(), finite.max()))
            texts = (*column.values, repr(float(self._number(*ends))).replace(".", column.decimal))
            places = np.where(column.places < 0, len(column.values), column.places)
            column = DataColumn(self.name, texts, places, column.decimal)
        return TableRows({**rows.columns, self.name: column}, rows.total)

    def sentences(self) -> list[str]:
        """Say how cells count; what the rows themselves have is said elsewhere."""
        sentences = []
        kinds = "is no number and no yes or no, count nowhere: --yes says which text is 1"
        gap_sentence = f"Rows of no named option, or whose {self.name} {kinds}."
        if self.yes is not None:
            sentences.append(f"{self.name} is 1 where it is {self.yes!r}, and 0 where it is something else.")
            if self.missing_as is None:
                sentences.append("NA, None and other marks of a gap are neither: --missing-as says what they count as.")
            gap_sentence = f"Rows of no named option, or without {self.name}, count nowhere."
        if self.missing_as is not None:
            sentences.append(f"Rows without {self.name} count as {self.missing_as}.")
            gap_sentence = "Rows of no named option count nowhere."
        if self.is_private:
            sentences.append(gap_sentence)
            if self.bounds is None and self.yes is None:
                other = "count as gaps" if self.missing_as is not None else "count nowhere either"
                sentences.append(
                    f"Numbers other than 0 and 1 {other}: give --bounds LOW:HIGH if {self.name} is a number."
                )
        return sentences
