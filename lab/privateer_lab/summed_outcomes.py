"""Outcomes of a finished test by sums over its rows: ratios, clusters, and covariates that adjust them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_lab.clusters import Clusters, denominators_of, few_clusters, ratio_values
from privateer_lab.covariates import adjusted_rewards, balance_warnings, covariate_columns
from privateer_lab.one_look import OneLook
from privateer_lab.tables.row_outcomes import RowOutcomes


@dataclass(frozen=True)
class SummedOutcomes:
    """What stands for rows."""

    # look, outcomes: the rows that stand for themselves, or for a cluster, and their outcomes
    look: OneLook
    outcomes: RowOutcomes
    unadjusted: RowOutcomes | None  # outcomes that no covariate adjusts; None where none does
    arms: NDArray[np.int64]  # shape (m,): arms of what was split among them
    places: NDArray[np.int64] | None  # shape (m,): the cluster of each, where some clusters are in both arms; else None
    clusters: int | None  # how many clusters stand for rows; None: rows stand for themselves
    sentences: tuple[str, ...]  # what was done


@dataclass(frozen=True)
class SumColumns:
    """Columns for sums over rows; one name instead of a list is refused."""

    per: str | None  # what outcomes are divided by; None: nothing
    cluster: str | None  # what rows depend on each other by; None: nothing
    adjust: Sequence[str]  # what was measured before

    def __post_init__(self) -> None:
        if isinstance(self.adjust, str):
            remedy = f"write adjust=[{self.adjust!r}]"
            raise SpecError("must be a list of names of columns", field="adjust", remedy=remedy)

    def check(self, part: str | None, *, is_private: bool) -> None:
        """Refuse sums with a promise, and those that people or segments of a column would part."""
        options = {"--cluster": self.cluster, "--per": self.per, "--adjust": next(iter(self.adjust), None)}
        for option, column in options.items():
            if column and is_private:
                detail = "needs sums of rows that a promise does not have of a finished test"
                remedy = "leave it out, or epsilon; --person counts people once each"
                raise SpecError(detail, field=option, remedy=remedy)
            if column and part and option != "--adjust":
                detail = f"is about sums over everybody, which {part} would part"
                remedy = "leave out --person and --segment; --cluster may name people"
                raise SpecError(detail, field=option, remedy=remedy)

    def applied(self, look: OneLook, outcomes: RowOutcomes) -> SummedOutcomes:
        """Return what stands for rows."""
        rows, arms, values, sentences = look.rows, look.chosen, outcomes.clipped, list[str]()
        clusters = Clusters.read(rows.column(self.cluster), arms) if self.cluster else None
        groups = look.groups(outcomes) if look.parts else np.zeros_like(arms)
        if self.per:
            values = ratio_values(values, denominators_of(rows.column(self.per)), arms)
            sentences.append(
                f"Effects are differences of {look.name} per {self.per}: of ratios of sums over an arm's rows."
            )
        plain_outcomes = outcomes.derived(values) if self.per else outcomes
        if clusters:
            look, plain_outcomes = look.of(clusters.first_rows), outcomes.derived(clusters.values(values))
            look = replace(look, warnings=(*look.warnings, *few_clusters(clusters.count, clusters.name)))
            sentences.append(clusters.sentence(look.name))
        if self.per:
            look = replace(look, name=f"{look.name} per {self.per}")
        n_clusters = clusters.count if clusters else None
        mixed = clusters if clusters and clusters.has_mixed else None
        split_arms, places = (arms, mixed.places[mixed.units]) if mixed else (look.chosen, None)
        if not self.adjust:
            return SummedOutcomes(look, plain_outcomes, None, split_arms, places, n_clusters, tuple(sentences))
        columns = covariate_columns(rows, self.adjust)
        values = adjusted_rewards(values, columns, arms, groups)
        if clusters:
            values = clusters.values(values)
            columns = np.stack([clusters.values(column) for column in columns.T], axis=1)
        warnings = balance_warnings(columns, look.chosen, self.adjust)
        look = replace(look, warnings=(*look.warnings, *warnings))
        outcomes = outcomes.derived(values)
        return SummedOutcomes(look, outcomes, plain_outcomes, split_arms, places, n_clusters, tuple(sentences))
