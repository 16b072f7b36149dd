"""The state of a trial, and what a round's release adds to it."""

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.algorithms.trial.learned_slopes import LearnedSlope
from privateer_core.answer.shares import Shares
from privateer_core.primitives.contributions import BITS, CellHits
from privateer_server.algorithms.trial.allocation import Holdout
from privateer_server.algorithms.trial.confidence_sequence import ConfidenceSequence
from privateer_server.algorithms.trial.evidence.epochs import Epoch, stable_weights
from privateer_server.algorithms.trial.evidence.slopes import learned_slope
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.group_sequential import critical_values, information
from privateer_server.algorithms.trial.power.planned_designs import TrialDesigns
from privateer_server.algorithms.trial.treatment_effects import asked_shares, people_shares

Array = NDArray[np.float64]

ALERT: Final = 1e-3
"""Probability of an alert, at any look, when nothing is lost."""


@dataclass(frozen=True)
class SampleRatio:
    """The sample-ratio check: whether arms are heard from as often as slots give them. Free, since slots are public."""

    planned: float  # reports planned over the whole trial
    people: Array  # shape (looks,): all reports up to each look
    # excess, variance: shape (K + 1,): slots beyond what the shares say, and its variance
    excess: Array
    variance: Array
    scores: Array  # shape (looks, K + 1): one over the other's root

    @classmethod
    def begin(cls, planned: float, arms: int) -> Self:
        """Return a check that has seen nothing."""
        return cls(planned, np.zeros(0), np.zeros(arms), np.zeros(arms), np.zeros((0, arms)))

    def add(self, people: float, more: Array, spread: Array) -> "SampleRatio":
        """Add an epoch of so many people, with people beyond what the shares say, (K + 1,), and its variance."""
        before = self.people[-1] if len(self.people) else 0.0
        excess, variance = self.excess + more, self.variance + spread
        scores = excess / np.sqrt(np.where(variance > 0, variance, np.inf))
        totals = np.append(self.people, before + people)
        return SampleRatio(self.planned, totals, excess, variance, np.concatenate([self.scores, scores[None]]))

    @property
    def alert(self) -> bool:
        """Whether an arm was heard from too often or too seldom, at any look."""
        arms = self.scores.shape[1]
        # Two arms' counts mirror each other: one test.
        level = ALERT if arms == 2 else ALERT / arms
        critical = critical_values(information(self.people, self.planned), level)
        return bool((np.abs(self.scores) > critical[:, None]).any())


@dataclass(frozen=True)
class TrialState:
    """The state of a trial: functions of releases, and of public coins."""

    seed: int  # what coins mean, in all rounds: those of a late report chose as they would now
    reported: int  # people whose reports opened so far
    evidence: TrialEvidence  # what releases add up to
    # evidence about everybody together, for the reward and each guardrail; empty where nobody is asked about that
    everybody: tuple[TrialEvidence, ...]
    members: Sums | None  # sums over people who were asked for their segment alone; None where nobody is
    # shape (rows, arms): shares of the arms in the next round. Rows are segments, and everybody where that is asked
    # about.
    shares: Array
    dropped: NDArray[np.bool_]  # shape (rows, arms): arms that elimination has dropped
    ratio: SampleRatio  # the sample-ratio check
    line: ConfidenceSequence | None  # the confidence sequence of strict intervals; None if the spec has others
    guardrails: tuple[TrialEvidence, ...]  # the same evidence about each guardrail
    held: Holdout | None  # the holdout that measures what choosing by segment gains; None until the policy is chosen
    # path, average_path: shape (looks, segments, treatments, 3) and (looks, treatments, 3): estimate and interval at
    # every look; nan where nothing is said
    path: Array
    average_path: Array
    stopped: str = ""  # which rule ended the trial; empty while none has
    # slopes by which devices adjust rewards in the next round, of the looks before it
    learned: tuple[LearnedSlope, ...] = ()

    @property
    def asked(self) -> Shares | None:
        """Segments' shares of the people as they were asked; None where nobody is."""
        return None if self.members is None else asked_shares(self.members)

    @property
    def shares_of_people(self) -> Shares:
        """The share of people in each segment, and its source."""
        return people_shares(self.evidence, self.asked)

    @classmethod
    def begin(cls, seed: int, spec: TrialSpec, plans: TrialDesigns) -> Self:
        """Return the state before any report."""
        design, everybody, guardrails = plans.segments, plans.everybody, len(spec.algorithm.guardrails)
        shares = np.tile(design.arms, (spec.share_rows, 1))
        size, treatments = spec.segment_count, spec.arm_count - 1
        return cls(
            seed,
            0,
            TrialEvidence.begin(design),
            (TrialEvidence.begin(everybody),) * (1 + guardrails) if everybody else (),
            Sums.none(design) if any(question.fact is None for question in spec.questions) else None,
            shares,
            np.zeros(shares.shape, bool),
            SampleRatio.begin(float(spec.experiment.horizon), spec.arm_count),
            ConfidenceSequence.begin(design) if spec.algorithm.intervals == "strict" else None,
            (TrialEvidence.begin(design),) * guardrails,
            None,
            np.zeros((0, size, treatments, 3)),
            np.zeros((0, treatments, 3)),
        )

    def add(self, policy: TrialPolicy, release: CellHits) -> "TrialState":
        """Add a round's release."""
        epoch, members = epoch_of(policy, release), self.members
        slopes = (learned_slope(release, policy.segments.count),) if policy.learns else ()
        if members is not None:
            # People who were asked for their segment have the weights of what their segment says.
            members = members.add(members_of(policy, release), stable_weights(self.evidence.design, epoch))
        return replace(
            self,
            reported=self.reported + release.reports,
            evidence=self.evidence.add(epoch),
            everybody=tuple(one.add(everybody_of(policy, release, fact)) for fact, one in enumerate(self.everybody)),
            members=members,
            ratio=self.ratio.add(float(release.reports), *excess_of(policy, release)),
            line=self.line and self.line.add(epoch),
            guardrails=tuple(one.add(epoch_of(policy, release, k)) for k, one in enumerate(self.guardrails, 1)),
            held=self.held and self.held.add(epoch),
            learned=(*policy.learned, *slopes),
        )


def epoch_of(policy: TrialPolicy, release: CellHits, fact: int = 0) -> Epoch:
    """Return what a round adds to the evidence about segments, of the reward (0) or of a guardrail.

    Where reports name the arm, other people hit an arm as often whatever its share. What they are expected to add is
    subtracted, and how much that varies is noise: as of a curator's pairs, so that everything after is the same.
    """
    if policy.questions:
        return _question_of(policy, release, fact)
    people, shares = float(release.reports), policy.arm_shares
    positive, hits, squares = _cells(policy, release, fact)
    # Every answer to guardrails has keys of its own, and adds as much noise.
    other, noise = policy.answers * release.other, policy.answers * release.noise
    parts = release.parts
    if squares is None:  # each answer to a guardrail has the noise of all parts of the reward
        noise, parts = noise * parts.count / 2, BITS
    epoch = Epoch(people, positive, hits, release.gain, other, noise, shares, squares, parts, release.resolution)
    if not policy.fresh_coins:
        return epoch
    false = people * other
    each = 2 * other / parts.count
    return replace(
        epoch,
        positive=positive - false,
        hits=hits - 2 * false,
        squares=None if squares is None else squares - 2 * false * parts.average_square,
        other=0.0,
        noise=noise + people * each * (1 - each),
    )


def everybody_of(policy: TrialPolicy, release: CellHits, fact: int = 0) -> Epoch:
    """Return what a round adds to the evidence about everybody, as about one segment."""
    return _question_of(policy, release, fact, everybody=True)


def members_of(policy: TrialPolicy, release: CellHits) -> Epoch:
    """Return what people add who were asked for their segment: of all arms together, instead of each."""
    epoch = _question_of(policy, release, None)
    positive, hits = (
        np.broadcast_to(cells.sum(axis=1, keepdims=True), cells.shape) for cells in (epoch.positive, epoch.hits)
    )
    return replace(epoch, positive=positive, hits=hits, shares=np.ones_like(epoch.shares), squares=None)


def _question_of(policy: TrialPolicy, release: CellHits, fact: int | None, *, everybody: bool = False) -> Epoch:
    """Return what people told who were asked one question."""
    question = [(one.fact, one.everybody) for one in policy.questions].index((fact, everybody))
    shares = policy.arms_asked(question)
    rows = slice(-1, None) if everybody else slice(len(shares))
    arms = slice(shares.shape[1] * question, shares.shape[1] * (question + 1))
    people = float(release.counts[0, arms].sum())
    positive, hits = (release.positive[rows, arms], release.hits[rows, arms])
    squares = None if release.squares is None else release.squares[rows, arms]
    facts = (release.gain, release.other, release.noise, shares)
    return Epoch(people, positive, hits, *facts, squares, release.parts)


def _cells(policy: TrialPolicy, release: CellHits, fact: int) -> tuple[Array, Array, Array | None]:
    """Return the values of hits, of the reward or a guardrail, all hits, and squares; shape (segments, arms) each.

    Bits have no squares apart.
    """
    segments, arms = policy.arm_shares.shape
    order = (segments, arms, policy.answers) if policy.fresh_coins else (segments, policy.answers, arms)
    axis = 2 if policy.fresh_coins else 1
    hits = release.hits.reshape(order)
    if fact:
        yes = np.flatnonzero(np.arange(policy.answers) >> (fact - 1) & 1)
        return np.take(hits, yes, axis=axis).sum(axis=axis), hits.sum(axis=axis), None
    squares = None if release.squares is None else release.squares.reshape(order).sum(axis=axis)
    return release.positive.reshape(order).sum(axis=axis), hits.sum(axis=axis), squares


def excess_of(policy: TrialPolicy, release: CellHits) -> tuple[Array, Array]:
    """Return people of each arm beyond what the shares say, and its variance if nobody is lost; (arms,) each.

    Coins tell where reports carry them; as one hash gives the arm in all segments, the mean over segments varies no
    more than a binomial of the mean share. Otherwise hits tell, with their noise.
    """
    shares = policy.arm_shares
    if not policy.fresh_coins:
        share, people = shares.mean(axis=0), float(release.reports)
        counts = release.counts[: len(shares)].mean(axis=0).reshape(-1, shares.shape[1]).sum(axis=0)
        return counts - people * share, people * share * (1 - share)
    epoch = epoch_of(policy, release)
    by_segment = epoch.hits.sum(axis=1, keepdims=True)
    spread = (np.maximum(by_segment, 0.0) * shares * (1 - shares)).sum(axis=0)
    # This is the variance of an arm's hits less its share of all arms' hits.
    others = np.square(shares) * (shares.shape[1] - 1)
    noise = epoch.parts.count * epoch.noise * (np.square(1 - shares) + others).sum(axis=0)
    return (epoch.hits - by_segment * shares).sum(axis=0), spread + noise
