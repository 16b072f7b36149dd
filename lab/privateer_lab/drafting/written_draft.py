"""A draft of a spec, and the file that is written of it once it is known what earns most on its people."""

import os
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms import read_spec
from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.sections import toml_tables
from privateer_core.spec.spec import Spec
from privateer_lab.drafting.column_choice import propensities_of
from privateer_lab.drafting.draft_choice import choice_for_classes, choice_for_log
from privateer_lab.drafting.feature_drafts import FeatureDrafts
from privateer_lab.drafting.fixed_sections import algorithm_section, with_filled_rounds
from privateer_lab.drafting.logged_people import LoggedPeople, logged_people
from privateer_lab.drafting.toml_values import toml
from privateer_lab.planning.algorithm_choice import AlgorithmChoice
from privateer_lab.planning.other_algorithms import by_features, with_own_rounds
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import TableRows

EVERYBODY: Final = "everybody"


@dataclass(frozen=True)
class Draft:
    """A spec to be completed, and what has to be known about it.

    Attributes
    ----------
    text
        The spec, as TOML.
    confirm
        Sentences about what comes from the data and becomes public.
    notes
        Sentences about what else was decided, such as columns that were left out.
    log
        The rows of a log, with what was chosen and what came of it; None where the draft is of none.
    labelled
        The file whose rows are people that have a class; None where the draft is of none.
    bounded, drawn
        Its features, and the same with cut points of numbers from the data.
    """

    text: str
    confirm: tuple[str, ...]
    notes: tuple[str, ...]
    log: "LoggedChoices | None" = field(default=None, repr=False)
    labelled: Path | None = None
    bounded: FeatureDrafts | None = field(default=None, repr=False)
    drawn: FeatureDrafts | None = field(default=None, repr=False)

    @property
    def spec(self) -> Spec:
        """The spec."""
        return read_spec(self.text)

    @cached_property
    def people(self) -> LoggedPeople | None:
        """Simulated people made from the log; None without one. The model is fitted when they are first asked for."""
        return self.log.people(cast(ArmsSpec, self.spec)) if self.log else None

    @property
    def choice(self) -> AlgorithmChoice | None:
        """The algorithm that earns most in runs with these people; None where none was tried."""
        return self._tried if isinstance(self._tried, AlgorithmChoice) else None

    @property
    def chosen(self) -> list[str]:
        """Why the draft has its algorithm, or why none was tried; nothing where there are no people to try it on."""
        if isinstance(self._tried, SpecError):
            return [f"No algorithm was tried on these people: {self._tried}."]
        return [self._tried.sentence] if self._tried else []

    @cached_property
    def _tried(self) -> AlgorithmChoice | SpecError | None:
        """What was found in runs, in which people are drawn; None of a test, or where no people are to be believed."""
        tables = toml_tables(self.text)
        if tables["algorithm"]["name"] not in by_features() or not (self.log or self.labelled):
            return None
        if self.people and self.people.contradictions:
            return None
        cut = toml_tables(self._with_cuts(self.text))
        if self.labelled:
            return choice_for_classes(self.labelled, tables, cut)
        assert self.people is not None
        return choice_for_log(self.people, tables, cut)

    def _with_cuts(self, text: str) -> str:
        """Return the spec with cut points of numbers from the data, where it has features of both kinds."""
        if not (self.bounded and self.drawn):
            return text
        return text.replace("\n".join(self.bounded.lines), "\n".join(self.drawn.lines))

    @property
    def _features(self) -> FeatureDrafts | None:
        return self.drawn if self.choice and self.choice.drawn is not None and self.drawn else self.bounded

    @property
    def confirmed(self) -> tuple[str, ...]:
        """What somebody has to confirm of the file that `write` writes."""
        if not (self.choice and self.bounded and self._features):
            return self.confirm
        others = [one for one in self.confirm if one not in self.bounded.confirm]
        names, kept = self._features.by_name, self.choice.kept
        comments = [] if kept is None else self._features.confirm_of([one for one in names if one not in kept])
        used = self._features.confirm_of(names if kept is None else kept)
        return (*others, *used, *(f"as a comment, {one}" for one in comments))

    @property
    def fitted(self) -> str:
        """The spec as TOML, with the algorithm and the features of `choice`, and the cut points if they earn more."""
        if not (self.choice and self.bounded and self._features):
            return self.text
        text, name, kept = self.text, self.choice.name, self.choice.kept
        tables = toml_tables(text)
        if self.choice.left_out:
            every, some = (f"arms = {toml(list(one))}" for one in (self.spec.options, self.choice.options))
            text = text.replace(every, f"# {self.choice.why_fewer}\n# {every}\n{some}", 1)
        lines = self._features.lines if kept is None else self._features.kept(kept, self.choice.why)
        head = "# [context.features]" if kept == () else "[context.features]"
        text = text.replace("\n".join(["[context.features]", *self.bounded.lines]), "\n".join([head, *lines])).replace(
            algorithm_section(tables["algorithm"]["name"]), algorithm_section(name)
        )
        if kept == ():
            text = text.replace("\ngain_share", "\n# gain_share")
        own, size = with_own_rounds(tables, name), tables["experiment"].get("round_size")
        if own is not None and size not in (None, own.experiment.round_size):
            text = text.replace(f"round_size = {size}\n", "", 1)
        return with_filled_rounds(text)

    def write(self, path: "str | os.PathLike[str]") -> None:
        """Write the spec with the algorithm of `choice`, and beside it the people of a log, whom it then names."""
        file, text = Path(path), self.fitted
        if self.people:
            some = self.choice.options if self.choice and self.choice.left_out else self.spec.options
            text += self.people.write(people_file(file), some)
        file.write_text(text, encoding="utf-8")

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        said = "".join(f"<li>{escape(one)}</li>" for one in (*self.confirm, *self.notes))
        return f"<pre>{escape(self.text)}</pre><ul>{said}</ul>"


def people_file(spec: Path) -> Path:
    """Return the file of people beside a spec."""
    return spec.with_name(f"{spec.stem}.people.parquet")


@dataclass(frozen=True)
class LoggedChoices:
    """The rows of a log that have an option and a reward."""

    rows: TableRows
    chosen: NDArray[np.int64]
    rewards: NDArray[np.float64]  # of which more is better
    name: str  # what the table calls them
    is_turned: bool  # whether less of that is better
    cluster: str | None  # what rows depend on each other by

    def people(self, spec: ArmsSpec) -> LoggedPeople:
        """Return simulated people made of the rows."""
        everybody = DataColumn(EVERYBODY, (EVERYBODY,), np.zeros(self.rows.kept, np.int64))
        columns = [self.rows.columns.get(name, everybody) for name in spec.features]
        turned = f"{'not' if spec.reward.kind == 'binary' else 'negative'} {self.name}"
        clusters = self.rows.column(self.cluster).places if self.cluster else None
        called, known = turned if self.is_turned else self.name, propensities_of(self.rows.columns.values())
        return logged_people(spec, columns, self.chosen, self.rewards, called, known, clusters)
