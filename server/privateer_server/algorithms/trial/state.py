"""The state of a trial, and its update by a round's release."""

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.algorithms.trial.learned_slopes import SLOPE_MAX, LearnedSlope
from privateer_core.answer.shares import Shares
from privateer_core.arrays import Array
from privateer_core.primitives.contributions import BERNSTEIN, BITS, CellHits
from privateer_server.algorithms.trial.allocation import Holdout
from privateer_server.algorithms.trial.evidence.epochs import Epoch, stable_weights
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.group_sequential import critical_values, information_fractions
from privateer_server.algorithms.trial.power.power_analysis import TrialDesigns
from privateer_server.algorithms.trial.treatment_effects import choose_people_shares, estimate_asked_shares

_DETECTION_DEVIATIONS: Final = 10.0
"""Standard deviations of its noise that the people of a segment must reach to be told from it."""


def estimate_slope(release: CellHits, segments: int) -> LearnedSlope:
    """Return the slope of the reward on the number within segments, pooled over arms, and the number's mean.

    With c the covariance of number and reward, v the variance of the number, and e the standard deviation of what noise
    adds to v: c / (v + e^2 / v), within `SLOPE_MAX`. Noise in v alone would make slopes steeper on average. It is 0,
    so that nothing is adjusted, where e is above v, or v is no more than rounding adds. Arms differ by their effect,
    which has nothing to do with a number from before: so they are added up (Deng, Xu, Kohavi and Walker 2013).

    release: of a round that asked for the number; its keys are segments, by arms and answers.
    """
    assert release.products is not None
    parts = release.products.reshape(3, 3, segments, -1)
    noise = release.noise / 3 * parts.shape[-1]
    # Sums over each segment of x^i r^j, with powers 1, 0 and 2 in the order of `ValueParts.moments`.
    sums = np.einsum("ai,bj,ijk->abk", BERNSTEIN.moments, BERNSTEIN.moments, parts.sum(axis=-1))
    people = sums[1, 1]
    is_detected = (people > 0) & (people >= _DETECTION_DEVIATIONS * np.sqrt(9 * noise))
    if not is_detected.any():
        return LearnedSlope(0.0, 0.5)
    people, numbers, squares = people[is_detected], sums[0, 1, is_detected], sums[2, 1, is_detected]
    covariance = (sums[0, 0, is_detected] - numbers * sums[1, 0, is_detected] / people).sum() / people.sum()
    variance = (squares - numbers**2 / people).sum() / people.sum()
    mean = float(np.clip(numbers.sum() / people.sum(), 0.0, 1.0))
    means = numbers / people
    coefficients = np.stack([-2 * means, np.square(means) - variance, np.ones_like(means)])
    noise_variance = 3 * noise * np.einsum("ik,ij,jk->", coefficients, BERNSTEIN.gram, coefficients)
    if variance <= release.resolution or np.sqrt(noise_variance) / people.sum() > variance:
        return LearnedSlope(0.0, mean)
    slope = covariance / (variance + noise_variance / people.sum() ** 2 / variance)
    return LearnedSlope(float(np.clip(slope, -SLOPE_MAX, SLOPE_MAX)), mean)


ALERT_PROBABILITY: Final = 1e-3  # probability of an alert, at any look, when nothing is lost


@dataclass(frozen=True)
class SampleRatio:
    """The sample-ratio check: whether reports by arm agree with the public shares of slots."""

    planned: float  # reports planned over the whole trial
    people: Array  # shape (looks,): all reports up to each look
    # excess, variance: shape (K + 1,): slots beyond what the shares say, and its variance
    excess: Array
    variance: Array
    scores: Array  # shape (looks, K + 1): one over the other's root

    @classmethod
    def begin(cls, planned: float, arms: int) -> Self:
        """Return a check without reports."""
        return cls(planned, np.zeros(0), np.zeros(arms), np.zeros(arms), np.zeros((0, arms)))

    def add(self, people: float, added_excess: Array, added_variance: Array) -> "SampleRatio":
        """Return the check with an epoch; ``added_excess`` is that of reports by arm over their shares, (K + 1,)."""
        n_before = self.people[-1] if len(self.people) else 0.0
        excess, variance = self.excess + added_excess, self.variance + added_variance
        scores = excess / np.sqrt(np.where(variance > 0, variance, np.inf))
        people_by_look = np.append(self.people, n_before + people)
        return SampleRatio(self.planned, people_by_look, excess, variance, np.concatenate([self.scores, scores[None]]))

    @property
    def has_alert(self) -> bool:
        """Whether an arm's reports were too frequent or too rare, at any look."""
        arms = self.scores.shape[1]
        # Two arms' counts mirror each other: one test.
        level = ALERT_PROBABILITY if arms == 2 else ALERT_PROBABILITY / arms
        critical = critical_values(information_fractions(self.people, self.planned), level)
        return bool((np.abs(self.scores) > critical[:, None]).any())


@dataclass(frozen=True)
class TrialState:
    """The state of a trial, computed from releases and public coins."""

    seed: int  # what coins mean, in all rounds: those of a late report chose as they would now
    reported: int  # people whose reports opened so far
    evidence: TrialEvidence  # what releases add up to
    # evidence about everybody together, for the reward and each guardrail; empty where nobody is asked about that
    everybody: tuple[TrialEvidence, ...]
    members: Sums | None  # sums over people who were asked for their segment alone; None where nobody is
    # shape (rows, arms): shares of the arms in the next round. Rows are segments, and everybody where that is asked
    # about.
    shares: Array
    ratio: SampleRatio  # the sample-ratio check
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
    def asked_shares(self) -> Shares | None:
        """Segments' shares as asked of participants; None without that question."""
        return None if self.members is None else estimate_asked_shares(self.members)

    @property
    def shares_of_people(self) -> Shares:
        """The share of participants in each segment, and its source."""
        return choose_people_shares(self.evidence, self.asked_shares)

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
            Sums.empty(design) if any(question.fact is None for question in spec.questions) else None,
            shares,
            SampleRatio.begin(float(spec.experiment.horizon), spec.arm_count),
            (TrialEvidence.begin(design),) * guardrails,
            None,
            np.zeros((0, size, treatments, 3)),
            np.zeros((0, treatments, 3)),
        )

    def add(self, policy: TrialPolicy, release: CellHits) -> "TrialState":
        """Return the state with a round's release added."""
        epoch, members = build_epoch(policy, release), self.members
        slopes = (estimate_slope(release, policy.segments.count),) if policy.learns_slope else ()
        if members is not None:
            # People who were asked for their segment have the weights of what their segment says.
            members = members.add(build_own_segment_epoch(policy, release), stable_weights(self.evidence.design, epoch))
        return replace(
            self,
            reported=self.reported + release.reports,
            evidence=self.evidence.add(epoch),
            everybody=tuple(
                evidence.add(build_everybody_epoch(policy, release, fact))
                for fact, evidence in enumerate(self.everybody)
            ),
            members=members,
            ratio=self.ratio.add(float(release.reports), *compute_excess(policy, release)),
            guardrails=tuple(
                evidence.add(build_epoch(policy, release, k)) for k, evidence in enumerate(self.guardrails, 1)
            ),
            held=self.held and self.held.add(epoch),
            learned=(*policy.learned, *slopes),
        )


def build_epoch(policy: TrialPolicy, release: CellHits, fact: int = 0) -> Epoch:
    """Return a round's epoch of the evidence by segment, of the reward (0) or of a guardrail.

    Where reports name the arm, other people hit an arm as often whatever its share. What they are expected to add is
    subtracted, and how much that varies is noise: as of a curator's pairs, so that everything after is the same.
    """
    if policy.questions:
        return _make_question_epoch(policy, release, fact)
    people, shares = float(release.reports), policy.arm_shares
    positive, hits, squares = _sum_answers(policy, release, fact)
    # Every answer to guardrails has keys of its own, and adds as much noise.
    other, noise = policy.n_answers * release.other, policy.n_answers * release.noise
    parts = release.parts
    if squares is None:  # each answer to a guardrail has the noise of all parts of the reward
        noise, parts = noise * parts.count / 2, BITS
    epoch = Epoch(people, positive, hits, release.gain, other, noise, shares, squares, parts, release.resolution)
    if not policy.has_fresh_coins:
        return epoch
    false_hits = people * other
    false_hit_rate = 2 * other / parts.count
    return replace(
        epoch,
        positive=positive - false_hits,
        hits=hits - 2 * false_hits,
        squares=None if squares is None else squares - 2 * false_hits * parts.average_square,
        other=0.0,
        noise=noise + people * false_hit_rate * (1 - false_hit_rate),
    )


def build_everybody_epoch(policy: TrialPolicy, release: CellHits, fact: int = 0) -> Epoch:
    """Return a round's epoch of the evidence on all participants, as a single segment."""
    return _make_question_epoch(policy, release, fact, everybody=True)


def build_own_segment_epoch(policy: TrialPolicy, release: CellHits) -> Epoch:
    """Return the epoch of reports on the participant's segment, pooled over arms."""
    epoch = _make_question_epoch(policy, release, None)
    cells = epoch.positive, epoch.hits
    positive, hits = (np.broadcast_to(each.sum(axis=1, keepdims=True), each.shape) for each in cells)
    return replace(epoch, positive=positive, hits=hits, shares=np.ones_like(epoch.shares), squares=None)


def _make_question_epoch(policy: TrialPolicy, release: CellHits, fact: int | None, *, everybody: bool = False) -> Epoch:
    """Return the epoch of the reports on a question, by segment or with all participants as a single segment."""
    question = [(entry.fact, entry.everybody) for entry in policy.questions].index((fact, everybody))
    shares = policy.asked_arm_shares(question)
    rows = slice(-1, None) if everybody else slice(len(shares))
    arms = slice(shares.shape[1] * question, shares.shape[1] * (question + 1))
    people = float(release.counts[0, arms].sum())
    positive, hits = (release.positive[rows, arms], release.hits[rows, arms])
    squares = None if release.squares is None else release.squares[rows, arms]
    facts = (release.gain, release.other, release.noise, shares)
    return Epoch(people, positive, hits, *facts, squares, release.parts)


def _sum_answers(policy: TrialPolicy, release: CellHits, fact: int) -> tuple[Array, Array, Array | None]:
    """Return the sums of hits' values, all hits, and squares, of the reward or a guardrail; (segments, arms) each.

    There are no squares of bits.
    """
    segments, arms = policy.arm_shares.shape
    order = (segments, arms, policy.n_answers) if policy.has_fresh_coins else (segments, policy.n_answers, arms)
    axis = 2 if policy.has_fresh_coins else 1
    hits = release.hits.reshape(order)
    if fact:
        positive_answers = np.flatnonzero(np.arange(policy.n_answers) >> (fact - 1) & 1)
        return np.take(hits, positive_answers, axis=axis).sum(axis=axis), hits.sum(axis=axis), None
    squares = None if release.squares is None else release.squares.reshape(order).sum(axis=axis)
    return release.positive.reshape(order).sum(axis=axis), hits.sum(axis=axis), squares


def compute_excess(policy: TrialPolicy, release: CellHits) -> tuple[Array, Array]:
    """Return the excess of reports by arm over their shares, and its variance without losses; (arms,) each.

    Coins tell where reports carry them; as one hash gives the arm in all segments, the mean over segments varies no
    more than a binomial of the mean share. Otherwise hits tell, with their noise.
    """
    shares = policy.arm_shares
    if not policy.has_fresh_coins:
        share, people = shares.mean(axis=0), float(release.reports)
        counts = release.counts[: len(shares)].mean(axis=0).reshape(-1, shares.shape[1]).sum(axis=0)
        return counts - people * share, people * share * (1 - share)
    epoch = build_epoch(policy, release)
    segment_hits = epoch.hits.sum(axis=1, keepdims=True)
    variances = (np.maximum(segment_hits, 0.0) * shares * (1 - shares)).sum(axis=0)
    # This is the variance of an arm's hits less its share of all arms' hits.
    other_shares = np.square(shares) * (shares.shape[1] - 1)
    noise = epoch.parts.count * epoch.noise * (np.square(1 - shares) + other_shares).sum(axis=0)
    return (epoch.hits - segment_hits * shares).sum(axis=0), variances + noise
