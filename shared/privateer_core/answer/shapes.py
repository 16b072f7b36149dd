"""Shape functions: what each feature of a person adds to the expected reward of each option, cell by cell."""

from privateer_core.answer.facts import Displayed


class ShapeCurve(Displayed, frozen=True):
    """What a feature adds for one option, in every cell, in the unit of rewards; over all people it adds 0.

    Attributes
    ----------
    option
        The option.
    values, lows, highs
        A figure for every cell, and the ends of its interval of 95 %, about, whatever the prior says.
    """

    option: str
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]


class FeatureShape(Displayed, frozen=True):
    """The shape functions of one feature.

    Attributes
    ----------
    feature
        Its name.
    is_ordered
        Whether cells follow each other, as those of a number do.
    has_missing
        Whether the last one holds the people of whom the number is missing.
    cells
        What each cell holds, in words.
    shares
        The share of people in each cell, as reports say.
    gain
        What choosing by this feature alone is expected to earn over one option for all, in the unit of rewards.
    curves
        One for each option that is shown.
    cells_left
        How many cells are not shown: those with the fewest people.

    Raises
    ------
    ValueError
        If a curve has not one figure a cell.
    """

    feature: str
    is_ordered: bool
    has_missing: bool
    cells: tuple[str, ...]
    shares: tuple[float, ...]
    gain: float
    curves: tuple[ShapeCurve, ...]
    cells_left: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = (self.shares, *(part for one in self.curves for part in (one.values, one.lows, one.highs)))
        if any(len(row) != len(self.cells) for row in rows):
            raise ValueError("a shape function must have a figure for every cell")


class Shapes(Displayed, frozen=True, tag="shapes", tag_field="kind"):
    """Shape functions of the features that choose most, by what choosing by each alone gains.

    Attributes
    ----------
    functions
        One for each feature that is shown.
    features_left, options_left
        How many features and options are not shown.
    """

    functions: tuple[FeatureShape, ...]
    features_left: int = 0
    options_left: int = 0
