"""A draft of a spec, and its file, which has the algorithm with the highest reward in simulated runs."""

import os
from collections.abc import Collection, Sequence
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
from privateer_core.spec.sections import parse_toml
from privateer_core.spec.spec import Spec
from privateer_lab.drafting.column_choice import find_propensities
from privateer_lab.drafting.draft_choice import choose_for_classes, choose_for_log
from privateer_lab.drafting.feature_drafts import FeatureDrafts
from privateer_lab.drafting.fixed_sections import (
    explain_cap,
    format_algorithm_section,
    format_arms,
    format_comment,
    with_filled_rounds,
    with_needed_cap,
)
from privateer_lab.drafting.gain_measurement import gain_half_width, without_measurement
from privateer_lab.drafting.logged_people import LoggedPeople, fit_logged_people
from privateer_lab.planning.algorithm_choice import AlgorithmChoice
from privateer_lab.planning.other_algorithms import contextual_algorithms, with_own_rounds
from privateer_lab.tables import shorten
from privateer_lab.tables.data_table import TableRows

_COMMENT_PREFIX: Final = "as a comment, "


@dataclass(frozen=True)
class Draft:
    """A spec to be completed, with sentences about it.

    Attributes
    ----------
    text
        The spec, as TOML.
    confirm
        Sentences about parts that come from the data and become public.
    notes
        Sentences about further decisions, such as columns that were left out.
    log
        The rows of a log, with arms and rewards; None if the draft has no log.
    labelled
        The file whose rows are labelled participants; None if the draft has no labels.
    bounded, drawn
        The features, and the same with cut points of numbers from the data.
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
        """Simulated participants from the log; None without a log. The model is fitted at first use."""
        return self.log.fit_people(cast(ArmsSpec, self.spec)) if self.log else None

    @property
    def choice(self) -> AlgorithmChoice | None:
        """The algorithm with the highest reward in simulated runs; None if no algorithm was tried."""
        return self._choice_or_error if isinstance(self._choice_or_error, AlgorithmChoice) else None

    @property
    def choice_notes(self) -> list[str]:
        """What earns more than the draft, reasons for its algorithm or for none, and the consent that its cap needs."""
        verdict = [self.verdict] if self.verdict else []
        return [*verdict, *self._algorithm_notes, *explain_cap(read_spec(self.text_with_choice))]

    @property
    def single_option(self) -> str | None:
        """The best arm by a log's rows, if runs of the draft earn less, or without features no more; None otherwise."""
        choice, people = self.choice, self.people
        if not (people and choice and (choice.shortfall or choice.is_tie)):
            return None
        is_plain = choice.is_tie or choice.kept_features == ()  # what features gain is not for this draft
        least_loss = (choice.margin or 0.0) + people.understated_gain
        return people.lead.best if is_plain or choice.gain < -least_loss else None

    @cached_property
    def verdict(self) -> str:
        """A paragraph on the single arm that earns no less than the draft, and how sure that is; empty without one."""
        if not (self.people and self.choice and self.single_option):
            return ""
        shortfall = f" In runs {self.choice.shortfall}." if self.choice.shortfall else ""
        name = repr(shorten(self.single_option))
        if self.people.has_held_out_gain:
            obstacle = "Choosing by features gains more, but so few people do not learn it under this promise"
            advice = f"{obstacle}: give {name} to everybody until more take part."
        elif self.people.lead.is_clear:
            advice = "Create this experiment only if options may have changed."
        else:
            advice = f"Until you know, {name} for everybody promises more than trying all anew."
        return f"{self.people.explain_lead()}{shortfall} {advice}"

    @property
    def _algorithm_notes(self) -> list[str]:
        if isinstance(self._choice_or_error, SpecError):
            return [f"No algorithm was tried on these people: {self._choice_or_error}."]
        if not self.choice:
            return []
        is_all = self.choice.kept_features is None and bool(self.choice.n_features or self.choice.suspects)
        return [self.choice.sentence, *([f"{self.choice.reason}."] if is_all else [])]

    def next_step(self, file: Path) -> str:
        """Recommend `privateer plan`, and the best single arm with remedies where it earns more than the draft."""
        suspects = self.people.suspects if self.people else ()
        if not suspects:
            return self._suggest_plan(file)
        names, options = ", ".join(map(shorten, suspects)), " ".join(f"--known {shorten(name)}" for name in suspects)
        return f"{self._suggest_plan(file)}. {names} is known before the choice? First the same command with {options}"

    def _suggest_plan(self, file: Path) -> str:
        """Recommend `privateer plan`, and the best single arm with remedies where it earns more than the draft."""
        if not (self.choice and (self.choice.shortfall or self.single_option)):
            return f"Next: privateer plan {file}"
        if self.people and self.single_option is None:
            gain = ", but the log shows more gain from choosing by features: do not give one option to everybody yet"
            advice = gain if self.people.has_held_out_gain else ""
            return f"Next: privateer plan {file}; {self.choice.shortfall}{advice}"
        promise = ", or another promise (--model, --epsilon)" if self.spec.privacy.trust.promises else ""
        advice = f"{self.choice.shortfall}. Give it to everybody, unless options may have changed"
        if self.people and self.people.lead.is_clear:
            advice = f"give {shorten(self.people.lead.best)!r} to everybody, unless options may have changed"
        elif self.people:
            advice = "log more rows with options at random, or compare options in a trial (--segments)"
        return f"Next: {advice}. What would help a draft: more people{promise}. What each earns: privateer plan {file}"

    @cached_property
    def _choice_or_error(self) -> AlgorithmChoice | SpecError | None:
        """The result of simulated runs; None for a test, or if there are no credible simulated participants."""
        tables = parse_toml(self.text)
        if tables["algorithm"]["name"] not in contextual_algorithms() or not (self.log or self.labelled):
            return None
        text = self.text
        if self.bounded and self.drawn:
            text = text.replace("\n".join(self.bounded.lines), "\n".join(self.drawn.lines))
        cut = parse_toml(text)
        if self.labelled:
            return choose_for_classes(self.labelled, tables, cut)
        assert self.people is not None
        return choose_for_log(self.people, tables, cut)

    def summarize_public(self, *, is_written: bool) -> list[str]:
        """Summarize the values from the data that become public, in at most two lines."""
        sentences = self.confirm_with_choice if is_written else self.confirm
        n_comments = sum(sentence.startswith(_COMMENT_PREFIX) for sentence in sentences)
        names = ", ".join(map(shorten, self.bounded.identifying if self.bounded else []))
        marked = f"{len(sentences) - n_comments} of its lines{f', and {n_comments} comments' if n_comments else ''}"
        remedy = "Change or confirm them before you create it. --json lists them."
        warning = f"First look at {names}: somebody may be known by a level of fewer than ten rows."
        public = f"Everybody may read a spec. Marked as from the data: {marked}. {remedy}"
        return [*([public] if sentences else []), *([warning] if names else [])]

    @property
    def _features(self) -> FeatureDrafts | None:
        return self.drawn if self.choice and self.choice.quantile_reward is not None and self.drawn else self.bounded

    @property
    def _kept_features(self) -> Sequence[str] | None:
        """The features that are no comments; None: all."""
        if self.choice and self.choice.kept_features is not None:
            return self.choice.kept_features
        return self.people.feature_names if self.people and self.people.suspects else None

    @property
    def confirm_with_choice(self) -> tuple[str, ...]:
        """Sentences to confirm about `text_with_choice`."""
        if not (self.choice and self.bounded and self._features):
            return self.confirm
        sentences = [sentence for sentence in self.confirm if sentence not in self.bounded.confirmations]
        names, chosen = self._features.by_name, self._kept_features
        commented = [] if chosen is None else self._features.list_public([name for name in names if name not in chosen])
        confirmations = self._features.list_public(names if chosen is None else chosen)
        return (*sentences, *confirmations, *(f"{_COMMENT_PREFIX}{sentence}" for sentence in commented))

    @property
    def text_with_choice(self) -> str:
        """The spec as TOML, with the algorithm, features and arms of `choice`, and quantiles if they earn more."""
        if not (self.choice and self.bounded and self._features):
            return self.text
        text, name, selected = self.text, self.choice.name, self._kept_features
        tables = parse_toml(text)
        if self.choice.dropped:
            all_arms, arms_line = (format_arms(arms) for arms in (self.spec.options, self.choice.options))
            text = text.replace(all_arms, f"# {self.choice.options_reason}\n# {all_arms}\n{arms_line}", 1)
        lines = self._features.lines if selected is None else self._features.format_lines(selected, self.choice.reason)
        head = "# [context.features]" if selected is not None and not selected else "[context.features]"
        text = text.replace("\n".join(["[context.features]", *self.bounded.lines]), "\n".join([head, *lines]))
        text = text.replace(format_algorithm_section(tables["algorithm"]["name"]), format_algorithm_section(name))
        text = without_measurement(text) if head.startswith("#") else self._with_useful_measurement(text)
        variant, round_size = with_own_rounds(tables, name), tables["experiment"].get("round_size")
        if variant is not None and round_size not in (None, variant.experiment.round_size):
            text = text.replace(f"round_size = {round_size}\n", "", 1)
        return format_comment(self.verdict) + with_needed_cap(with_filled_rounds(text))

    def _with_useful_measurement(self, text: str) -> str:
        """Make a measurement whose interval is wider than the gain in runs a comment."""
        spec = cast(ArmsSpec, read_spec(text))
        if not (self.choice and spec.gain_people) or (half_width := gain_half_width(spec)) <= self.choice.gain:
            return text
        return without_measurement(text, self.choice.explain_wide_interval(half_width))

    def write(self, path: "str | os.PathLike[str]") -> None:
        """Write the spec with the algorithm of `choice`, and a population file from the log, which the spec names."""
        file, text = Path(path), self.text_with_choice
        if self.people:
            options = self.choice.options if self.choice and self.choice.dropped else self.spec.options
            text += self.people.write(population_path(file), options)
        file.write_text(text, encoding="utf-8")

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in (*self.confirm, *self.notes))
        return f"<pre>{escape(self.text)}</pre><ul>{items}</ul>"


def population_path(spec: Path) -> Path:
    """Return the path of a spec's population file."""
    return spec.with_name(f"{spec.stem}.people.parquet")


@dataclass(frozen=True)
class LoggedChoices:
    """The rows of a log that have an arm and a reward."""

    rows: TableRows
    arms: NDArray[np.int64]
    rewards: NDArray[np.float64]  # of which more is better
    reward_name: str  # what the table calls them
    is_negated: bool  # whether less of that is better
    cluster: str | None  # what rows depend on each other by
    known: Collection[str] = ()  # features that are known before the choice, whatever rows say

    def fit_people(self, spec: ArmsSpec) -> LoggedPeople:
        """Fit simulated participants to the rows."""
        columns = [self.rows.columns[name] for name in spec.features]
        negated_name = f"{'not' if spec.reward.kind == 'binary' else 'negative'} {self.reward_name}"
        clusters = self.rows.column(self.cluster).codes if self.cluster else None
        name = negated_name if self.is_negated else self.reward_name
        propensities = find_propensities(self.rows.columns.values())
        return fit_logged_people(spec, columns, self.arms, self.rewards, name, propensities, clusters, self.known)
