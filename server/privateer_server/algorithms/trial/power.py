"""Power analysis of a trial before anybody is asked: least effects, power, and how many people it takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.segments import EVERYBODY
from privateer_core.answer.facts import Kind, Table
from privateer_core.errors import SpecError
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.contributions import BITS, ValueParts
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.adjustment import left_over
from privateer_server.algorithms.trial.evidence.epochs import PlannedEpoch, TrialDesign
from privateer_server.algorithms.trial.evidence.value_sums import PlannedValues
from privateer_server.algorithms.trial.group_sequential import POWER, decision_time, drift_of, information, power
from privateer_server.algorithms.trial.power_simulation import AdaptivePlan, least_effect, people_times, power_of

Array = NDArray[np.float64]

_WIDER: Final = (1, 10, 100)
_DUST: Final = 1e-3
"""People that rounding adds."""
_SIZES: Final = 4
"""Segments of so many sizes are simulated; between them, what a formula is wrong by follows the size's logarithm."""
_ROUNDS: Final = 6
_STEEP: Final = 0.95
_SIGNIFICANT: Final = 4
QUESTION_COLUMNS: Final[dict[str, Kind]] = {"question": "words", "about": "words", "share of people": "share"}


@dataclass(frozen=True)
class TrialDesigns:
    """The designs for people who are asked about their segment, and for those who are asked about everybody."""

    segments: TrialDesign
    everybody: TrialDesign | None


def designs(spec: TrialSpec) -> TrialDesigns:
    """Return what a spec plans: people of all epochs, by what coins ask them."""
    terms, people, questions = spec.planned(""), spec.experiment.horizon, spec.questions
    own = TrialDesign(spec.algorithm.level, people, np.array(spec.arm_shares), spec.segment_shares)
    own = replace(own, numeric=spec.numeric)
    mechanism = terms.mechanism if terms else None
    if questions:
        own = replace(own, people=people * questions[0].share)
    if not isinstance(mechanism, NamedSymbol) or mechanism.named:
        return TrialDesigns(own, None)
    own = replace(own, counted=False, hit=1 / mechanism.buckets)
    about = next((question.share for question in questions if question.everybody), None)
    if about is None:
        return TrialDesigns(own, None)
    hit = mechanism.response.gain + 2 * mechanism.response.other
    return TrialDesigns(own, replace(own, people=people * about, segments=np.ones(1), hit=hit))


def planned_epochs(spec: TrialSpec) -> list[PlannedEpoch]:
    """Return the epochs to come, as their mechanisms will be calibrated: people asked for the reward by segment."""
    share = spec.questions[0].share if spec.questions else 1.0
    batches = np.diff([0, *spec.looks]).tolist()
    return [_planned(spec, batch, batch * share, look) for look, batch in enumerate(batches)]


def _planned(spec: TrialSpec, batch: int, people: float, look: int) -> PlannedEpoch:
    """Return the epoch of a look, from 0: where slopes are learned, each look before it has told one."""
    mechanism: Any = calibrate(spec.privacy, batch, spec.question_after(look)).mechanism
    if isinstance(mechanism, CellPairs):
        values = _valued(spec, mechanism.parts, look, rounded=False)
        return PlannedEpoch(people, noise=spec.answers * mechanism.noise, values=values)
    levels = mechanism.levels
    keep, each = mechanism.response.gain, spec.answers * mechanism.response.other
    values = _valued(spec, ValueParts.levels(levels), look, rounded=True)
    if spec.names_arms:
        return PlannedEpoch(people, keep, noise=people * each * (1 - each), values=values)
    return PlannedEpoch(people, keep, each * levels / 2, values=values)


def _valued(spec: TrialSpec, parts: ValueParts, look: int, *, rounded: bool) -> PlannedValues | None:
    told = spec.deviation_after(look)
    return None if told is None else PlannedValues.of(spec.rate, told, parts, rounded=rounded)


def deviations(design: TrialDesign, epochs: Sequence[PlannedEpoch], rate: float | Array) -> Array:
    """Return standard deviations (J, K) of effects after all epochs at planned shares; ``rate`` may be (J, K), too.

    With v hits per person, th = 1/2 + q p (2 f - 1)/(2 v) the share of them that is positive, E epochs of noise L:
    (v/(q p))^2 th (1 - th) (1/(n v pi_a) + 1/(n v pi_0)) + E L ((1 - f)^2 + f^2) (1/(n q p pi_a)^2 + 1/(n q p pi_0)^2).
    Of numbers, th (1 - th) is the variance of what a hit counts, and (1 - f)^2 + f^2 that of noise about f.
    """
    n = sum(epoch.people for epoch in epochs)
    q = sum(epoch.people * epoch.keep for epoch in epochs) / n
    o = sum(epoch.people * epoch.other for epoch in epochs) / n
    p = design.segments[:, None]
    v = q * p + 2 * o if design.counted else np.full_like(p, design.hit)
    both = np.stack([design.arms[1:], np.full(len(design.arms) - 1, design.arms[0])], axis=-1)
    f, mean = np.asarray(rate), np.asarray(0.5 + q * p * (2 * rate - 1) / (2 * v))
    varies = mean * (1 - mean)
    if values := [(epoch, epoch.values) for epoch in epochs if epoch.values]:
        measured = [told.measured(epoch.noise, n * v[..., None] * both, f) for epoch, told in values]
        varies = np.sqrt(np.square(measured).sum(axis=0))
        varies = varies + sum(epoch.people * told.hit_variance(q * p, v, f) for epoch, told in values) / n
    sampling = np.square(v / (q * p)) * varies / (n * v) * (1 / both).sum(axis=-1)
    noise = sum(epoch.noise * (epoch.values.parts if epoch.values else BITS).noise_about(f) for epoch in epochs)
    return np.asarray(np.sqrt(sampling + noise * np.square(1 / both).sum(axis=-1) / np.square(n * q * p)))


def looks_of(design: TrialDesign, epochs: Sequence[PlannedEpoch]) -> tuple[float, ...]:
    """Return information fractions of the epochs."""
    return information(np.cumsum([epoch.people for epoch in epochs]), design.people)


def people_needed(
    design: TrialDesign, epochs: Sequence[PlannedEpoch], rate: float | Array, effect: float, power: float = POWER
) -> Array:
    """Return people (J, K) with whom this effect is found, if all epochs grow alike and randomize as they do.

    Sampling falls with people and a curator's noise with their square: n solves sd^2 = s/n + l/n^2.
    """
    n = sum(epoch.people for epoch in epochs)
    quiet = [replace(epoch, noise=0.0) for epoch in epochs]
    sampling = np.square(deviations(design, quiet, rate))
    noise = np.square(deviations(design, epochs, rate)) - sampling
    wanted = (effect / drift_of(looks_of(design, epochs), design.alpha, power)) ** 2
    s, square = sampling * n, np.maximum(noise, 0.0) * n**2
    return np.asarray(np.ceil((s + np.sqrt(np.square(s) + 4 * wanted * square)) / (2 * wanted) - _DUST))


@dataclass(frozen=True)
class PowerAnalysis:
    """A trial before its first person.

    Where shares are fixed, formulas know all of it. Where they adapt, and for strict intervals, statistics are
    simulated. An effect is that of one treatment, upwards; the others do as the control does.

    Attributes
    ----------
    plans, epochs
        What is planned, and how its mechanisms will be calibrated.
    rule, floor, strict
        The allocation, the least share of an arm, and whether intervals are strict.
    rate, target
        Mean reward under the control, and the power wanted.
    people
        All people.
    arms
        Treatments to tell apart, from 0; one stands for all where all are planned alike.
    waiting
        How many people choose between somebody's choice and the report on it.
    """

    plans: TrialDesigns
    epochs: tuple[PlannedEpoch, ...]
    rule: str
    floor: float
    rate: float
    target: float
    people: float
    strict: bool
    arms: tuple[int, ...]
    waiting: float = 0.0

    @property
    def formulas(self) -> bool:
        """Whether formulas know what can be found."""
        return self.rule == "fixed" and not self.strict

    def least(self) -> Array:
        """Return the least effects found with the power wanted, (J, K); with one row more for the average of several.

        On the scale of rewards from 0 to 1; infinite where there is none.
        """
        guess = self._least()
        if self.formulas:
            return guess
        return self._simulated(lambda plan, arm, row: least_effect(plan, arm, self.target, guess[row, arm]), guess)

    def power(self, effect: float) -> tuple[Array, Array]:
        """Return the probability of finding an effect, and the mean share of the people until it is; as `least`."""
        drift = effect / self._deviations(effect)
        alpha, times = self.plans.segments.alpha, looks_of(self.plans.segments, self.epochs)
        found = np.reshape(power(times, alpha, drift.ravel()), drift.shape)
        until = np.vectorize(lambda one: decision_time(times, alpha, float(one)))(drift)
        if self.formulas:
            return found, until
        return (
            self._simulated(lambda plan, arm, _: power_of(plan, arm, effect)[0]),
            self._simulated(lambda plan, arm, _: power_of(plan, arm, effect)[1]),
        )

    def people_for(self, effect: float) -> Array:
        """Return with how many people, in all, an effect is found with the power wanted; as `least`."""
        design = self.plans.segments
        needed = people_needed(design, self.epochs, self._middle(effect), effect, self.target)
        guess = self.people / design.people * needed
        if len(design.segments) > 1:
            overall = self.people * np.square(self._drift * self._deviations(effect)[-1] / effect)
            guess = np.concatenate([guess, overall[None]])
        if self.formulas:
            return guess
        times = guess / self.people
        found = self._simulated(
            lambda plan, arm, row: people_times(plan, arm, self.target, effect, float(times[row, arm])), times
        )
        return np.asarray(self.people * found)

    @property
    def _drift(self) -> float:
        return drift_of(looks_of(self.plans.segments, self.epochs), self.plans.segments.alpha, self.target)

    def _middle(self, effect: Array | float) -> Array:
        """Return the mean reward of both arms, by which an interval judges their variances."""
        return np.asarray(np.minimum(self.rate + np.asarray(effect) / 2, _STEEP))

    def _least(self) -> Array:
        """Return the least effects at planned shares. An effect moves the mean, and the mean the effect."""
        found = self._drift * self._deviations(0.0)
        for _ in range(_ROUNDS):
            found = self._drift * self._deviations(found)
        return found

    def _deviations(self, effects: Array | float) -> Array:
        """Return standard deviations at planned shares of effects in segments, and of their average."""
        design, whole = self.plans.segments, self.plans.everybody
        size, treatments = len(design.segments), len(design.arms) - 1
        rates = np.broadcast_to(self._middle(effects), (size + (size > 1), treatments))
        segments = deviations(design, self.epochs, rates[:size])
        if size == 1:
            return segments
        summed = design.segments[:, None] * deviations(design, self.epochs, rates[size:])
        precision = 1 / np.square(summed).sum(axis=0)
        if whole is not None:
            precision = precision + 1 / np.square(deviations(whole, self._asked, rates[size:])[0])
        return np.concatenate([segments, 1 / np.sqrt(precision)[None]])

    @property
    def _asked(self) -> tuple[PlannedEpoch, ...]:
        """Return epochs of the people who are asked about everybody."""
        whole = self.plans.everybody
        times = whole.people / self.plans.segments.people if whole else 0.0
        return tuple(replace(epoch, people=epoch.people * times) for epoch in self.epochs)

    def _plan(self) -> AdaptivePlan:
        own = AdaptivePlan(self.rule, self.floor, self.rate, self.plans.segments, self.epochs)
        own = replace(own, waiting=self.waiting * self.plans.segments.people / self.people)
        whole = self.plans.everybody
        beside = (
            None
            if whole is None
            else replace(own, design=whole, epochs=self._asked, waiting=self.waiting * whole.people / self.people)
        )
        return replace(own, strict=self.strict, everybody=beside)

    def _simulated(self, figure: Callable[[AdaptivePlan, int, int], float], guess: Array | None = None) -> Array:
        """Return a figure of every segment and treatment, and of their average.

        Of few sizes of segments it is simulated, and between them it is interpolated: as a multiple of the guess, if
        there is one.
        """
        plan, shares = self._plan(), self.plans.segments.segments
        size, treatments = len(shares), len(plan.design.arms) - 1
        rows = np.argsort(shares)[np.linspace(0, size - 1, min(size, _SIZES)).round().astype(int)]
        sizes, places = np.unique(shares[rows].round(9), return_index=True)
        found = np.empty((size + (size > 1), treatments))
        scale = np.ones(found.shape) if guess is None else guess
        for arm in self.arms:
            known = [figure(plan.of(float(shares[row])), arm, row) / scale[row, arm] for row in rows[places]]
            found[:size, arm] = scale[:size, arm] * np.interp(np.log(shares), np.log(sizes), known)
            if size > 1:
                found[size, arm] = figure(replace(plan, strict=False), arm, size)
        for arm in set(range(treatments)) - set(self.arms):
            found[:, arm] = found[:, self.arms[0]]
        return found


def check_effect(spec: TrialSpec, plans: TrialDesigns) -> None:
    """Refuse an effect that matters and that the promise hides in every segment, and on average.

    Raises
    ------
    SpecError
        With the least effect that can be found.
    """
    if spec.smallest is None:
        return
    found = power_analysis(spec, plans)
    if spec.experiment.conversion_window:
        # Shares follow late, and how late nobody knows here: more is found than without a window, up to fixed shares.
        found = replace(found, rule="fixed")
    if found.power(spec.smallest)[0].max() >= found.target:
        return
    least = float(found.least().min())
    if spec.smallest < least:
        unit = spec.reward.span
        said = f"the least effect that can is {unit * least:.3g}" if least < np.inf else "nor can any other"
        detail = f"cannot be found with power {spec.algorithm.power:g}: {said}"
        remedy = "raise experiment.horizon or privacy.epsilon, have fewer arms, or set a larger effect"
        if spec.numeric:
            remedy += ", or narrower reward bounds"
            remedy += "" if spec.reward.deviation else ", or say what reward.deviation is expected"
        if not found.formulas:
            remedy += ", or a larger algorithm.floor"
        raise SpecError(detail, field="algorithm.effect", remedy=remedy)


def power_tables(spec: TrialSpec, plans: TrialDesigns, waiting: float = 0.0) -> tuple[Table, ...]:
    """Return what can be found in each segment and on average; for an effect that matters with how many people, when.

    An effect is found if its interval leaves 0 out at some look. Where shares adapt, numbers are those of simulated
    statistics. Of ``waiting`` people nothing is known yet who have chosen before a look and report after it.
    """
    found, unit, wanted = power_analysis(spec, plans, waiting), spec.reward.span, spec.smallest
    least, arms = found.least(), _alike(spec)
    names = [*spec.segment_names, EVERYBODY][: len(least)]
    columns: dict[str, Kind] = {"segment": "words", "arm": "words", "least effect": "difference"}
    cells = [[name, arm, _rounded(unit * least[k, a])] for k, name in enumerate(names) for a, arm in arms]
    if left_over(spec.reward.adjust) < 1:
        columns["least effect if nothing were adjusted"] = "difference"
        plain = power_analysis(spec.unadjusted, plans, waiting).least()
        for row, (k, a) in zip(cells, ((k, a) for k in range(len(names)) for a, _ in arms), strict=True):
            row.append(_rounded(unit * plain[k, a]))
    if wanted is not None:
        columns |= {
            "power for the effect wanted": "probability",
            "people for the effect wanted": "count",
            "people until decided, or all": "count",
        }
        power, until = found.power(wanted)
        people = found.people_for(wanted)
        for row, (k, a) in zip(cells, ((k, a) for k in range(len(names)) for a, _ in arms), strict=True):
            horizon = spec.experiment.horizon
            row += [round(float(power[k, a]), 2), _whole(people[k, a]), round(horizon * float(until[k, a]) + waiting)]
    rows = tuple(tuple(row) for row in cells)
    looks = tuple((look, round(people + waiting)) for look, people in enumerate(spec.looks, 1))
    alike = ", if all segments have as many people" if spec.segment_count > 1 and spec.segments.shares is None else ""
    title = f"what can be found with power {spec.algorithm.power:g}{alike}"
    tables: tuple[Table, ...] = (
        Table.of(title, columns, rows),
        Table.of("looks", {"look": "count", "people": "count"}, looks),
    )
    if spec.numeric:
        tables = (*tables, bounds_table(spec))
    if not spec.questions:
        return tables
    return *tables, Table.of("what coins ask", QUESTION_COLUMNS, question_rows(spec))


def bounds_table(spec: TrialSpec) -> Table:
    """Return what wider bounds cost at planned shares: the least effect on everybody, of the most frequent arm."""
    reward, rows = spec.reward, []
    for times in _WIDER:
        wider = reward.model_copy(
            update={
                "high": reward.low + times * reward.span,
                "base_rate": reward.low + spec.rate * reward.span,
                "deviation": (spec.unadjusted.deviation or 0.0) * reward.span,
            }
        )
        other = spec.model_copy(update={"reward": wider})
        least = replace(power_analysis(other, designs(other)), rule="fixed", strict=False).least()[-1].min()
        rows.append((f"{wider.low:g} to {wider.high:g}", _rounded(wider.span * float(least))))
    columns: dict[str, Kind] = {"bounds": "words", "least effect": "difference"}
    return Table.of("what wider bounds would cost, with planned shares of the arms", columns, tuple(rows))


def question_rows(spec: TrialSpec) -> tuple[tuple[str, str, float], ...]:
    """Return what coins ask, about whom, and of which share of the people; empty if everybody answers all."""
    facts = ("the reward", *spec.algorithm.guardrails)
    return tuple(
        (
            "being in the segment" if one.fact is None else facts[one.fact],
            EVERYBODY if one.everybody else "a segment",
            round(one.share, 6),
        )
        for one in spec.questions
    )


def _alike(spec: TrialSpec) -> list[tuple[int, str]]:
    """Return treatments by number and name, or one in the place of all where their planned shares are equal."""
    arms = list(enumerate(spec.options[1:]))
    return [(0, "each")] if len(arms) > 1 and len(set(spec.arm_shares[1:])) == 1 else arms


def _rounded(effect: float) -> float | None:
    """Round an effect; None if no rewards differ so much."""
    return float(f"{effect:.{_SIGNIFICANT}g}") if np.isfinite(effect) else None


def _whole(people: float) -> int | None:
    return round(float(people)) if np.isfinite(people) else None


def power_analysis(spec: TrialSpec, plans: TrialDesigns, waiting: float = 0.0) -> PowerAnalysis:
    """Return what a spec can find, before anybody is asked; ``waiting`` people choose before somebody reports."""
    section = spec.algorithm
    return PowerAnalysis(
        plans,
        tuple(planned_epochs(spec)),
        section.allocation,
        spec.floor,
        spec.rate,
        section.power,
        spec.experiment.horizon,
        section.intervals == "strict",
        tuple(a for a, _ in _alike(spec)),
        waiting,
    )
