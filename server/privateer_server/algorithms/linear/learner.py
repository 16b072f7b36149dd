"""Learners of linear and generalized linear bandits: by residuals, by their running sum, and by joint reports."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.linear.design_matrix import LINKS
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.reports import MATRIX, PRODUCT, matrix_of
from privateer_core.algorithms.linear.spec import LinearSpec
from privateer_core.answer import Answer
from privateer_core.answer.facts import Fact
from privateer_core.answer.measured_rate import MeasuredRate
from privateer_core.answer.parts import Figures
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.primitives.bounded_vectors import RunningSums, VectorSums
from privateer_server.algorithms import Learner, NewRound, RoundsLearner
from privateer_server.algorithms.linear.context_moments import PEOPLE, Contexts, frame, slopes
from privateer_server.algorithms.linear.posterior import Posterior, RewardLevel, level_of, posterior
from privateer_server.algorithms.linear.sufficient_statistics import Known, Recent, RoundResiduals, Running, Statistics

Array = NDArray[np.float64]
_SURE: Final = 0.01
"""The least doubt about slopes."""
_AGAIN: Final = 1 << 13
"""People drawn for a round that is read again."""
_LEAST: Final = 1e-3
"""Variance of what people say of an arm, if none would be seen to play it."""
_RIDGE: Final = 1.0
_RARE: Final = 0.02
"""The share of rewards, or of their absence, below which people explore more."""
_RATE: Final = 1e-4
"""The least rate that is believed."""


@dataclass(frozen=True)
class LinearState:
    """The state of a linear learner."""

    reported: int  # people whose reports opened
    # shape (arms, d, d): what has been learned of every arm's parameter, as `posterior` takes it; of joint reports the
    # noisy second moments
    information: Array
    scores: Array  # shape (arms, d)
    # moments, precision: second moments of whitened contexts, (d, d), summed with their precisions, and the sum of
    # these, (d, d); of joint reports, precisions are all the variance of noise in ``information``
    moments: Array
    precision: Array
    running: Running | None = None  # sums since noise began anew, where it depends on that of earlier rounds
    # the rounds that are read again when more is known of contexts; what they say is part of ``information``, too
    recent: Recent | None = None


class LinearLearner(RoundsLearner[LinearSpec, LinearState, LinearPolicy]):
    """The schedule, which the spec fixes but for who tells second moments."""

    state_type = LinearState
    publishes_result = False
    same = ("algorithm", "experiment.arms", "experiment.retired", "context.features", "reward")

    def __init__(self, spec: LinearSpec) -> None:
        super().__init__(spec)
        self.design, self.link = spec.design, LINKS[spec.algorithm.link]
        self.contexts = Contexts(self.design)

    @override
    def start(self, seed: int) -> LinearState:
        arms, d = self.spec.arm_count, self.design.dimension
        return LinearState(0, np.zeros((arms, d, d)), np.zeros((arms, d)), np.zeros((d, d)), np.zeros((d, d)))

    @abstractmethod
    def known(self, state: LinearState) -> tuple[Array, Array]:
        """Return means (arms, d) and covariances (arms, d, d) of parameters."""

    @abstractmethod
    def matrices(self, state: LinearState) -> tuple[Array, Array]:
        """Return what rows are multiplied with for directions, and for second moments, (d, d) each."""

    @override
    def policy(self, state: LinearState, ahead: NewRound) -> LinearPolicy:
        """Return the policy of a round; where nobody is asked everybody gets the arm with the largest mean."""
        spec, (means, covariances) = self.spec, self.known(state)
        played = np.flatnonzero(spec.playable)
        whitening, telling = self.matrices(state)
        return LinearPolicy(
            version=ahead.version,
            design=self.design,
            link=spec.algorithm.link,
            means=means,
            factors=np.asarray(np.linalg.cholesky(covariances), np.float64),
            whitening=whitening,
            telling=telling,
            exploration=self.exploration(state) if ahead.batch else 0.0,
            playable=np.array(spec.playable),
            # Before anybody has reported nothing but coins chooses, so that one round can ask about all arms.
            favours=int(played[ahead.version % len(played)]) if spec.favours and state.reported else -1,
            share=spec.share,
            seed=ahead.seed,
            terms=self.terms(ahead, spec.asked(ahead.seed)),
        )

    def rate(self, state: LinearState) -> float:
        """Return the mean reward on the whole, as far as it is known to be other than 1/2."""
        del state
        return 0.5

    def exploration(self, state: LinearState) -> float:
        """Return how far coins move what is known, in standard deviations: one where rewards are rare.

        There a few rewards mislead, and less would leave some runs with a wrong arm for good.
        """
        rate = self.rate(state)
        return 1.0 if min(rate, 1 - rate) < _RARE else self.spec.algorithm.exploration

    @override
    def rearmed(self, state: LinearState, before: LinearSpec) -> LinearState:
        added = self.spec.arm_count - before.arm_count
        information, scores = _wider(state.information, added), _wider(state.scores, added)
        return replace(state, information=information, scores=scores, recent=state.recent if not added else None)

    @override
    def anew(self, state: LinearState) -> LinearState:
        return replace(state, reported=0, recent=None)

    @override
    def figures(self, state: LinearState) -> dict[str, float]:
        """Return how far a mean reward may be off: standard deviation, averaged over arms and people."""
        spread = np.einsum("kij,ij->k", self.known(state)[1], self.contexts.assumed)
        return {"uncertainty": float(np.sqrt(spread).mean()) / self.link.scale}

    @override
    def answer(self, state: LinearState) -> Answer:
        """Return how well the parameters are known: the policy is all else that is found."""
        off = Fact("typical error of a mean reward", round(self.figures(state)["uncertainty"], 4), "number")
        return self.answered(state, parts=(Figures("what is known", (off,)),) if state.reported else ())

    @override
    def expected(self, state: LinearState) -> ExpectedRewards | None:
        if not state.information.any():
            return None
        means, covariances = self.known(state)
        reward, link = self.spec.reward, self.link

        def at(contexts: Array) -> tuple[Array, Array]:
            rows = self.design.rows(contexts)
            products = rows @ means.T
            spreads = np.sqrt(np.maximum(np.einsum("nd,kde,ne->nk", rows, covariances, rows, optimize=True), 0.0))
            deviations = reward.span * link.slopes(products) * spreads
            return reward.unscaled(np.clip(link.truths(products), 0.0, 1.0)), deviations

        def deviation(contexts: Array, weights: Array) -> float:
            rows = self.design.rows(contexts)
            sums = (weights * link.slopes(rows @ means.T)).T @ rows
            return reward.span * float(np.sqrt(max(0.0, np.einsum("kd,kde,ke->", sums, covariances, sums))))

        return ExpectedRewards.everywhere(self.spec.dimension, at, deviation)

    def centre(self) -> Array:
        """Return the prior's mean of any arm's parameter, (d,)."""
        return np.asarray(self.link.centre * np.eye(1, self.design.dimension)[0])


def _wider(values: Array, added: int) -> Array:
    return np.concatenate([values, np.zeros((added, *values.shape[1:]))])


class ResidualLearner(LinearLearner):
    """Regression on means of residuals, whose slopes follow from second moments of contexts (`surrogate.slopes`)."""

    def moments(self, state: LinearState) -> Array:
        """Return second moments of contexts: observed ones and assumed ones, by their precisions."""
        return self.contexts.moments(self.contexts.features(state.moments, state.precision))

    def doubt(self, state: LinearState) -> float:
        """Return the square of how far slopes may be off, relative to what they are: as far as second moments are."""
        return min(1.0, max(_SURE, self.contexts.features(state.moments, state.precision).doubt))

    def posterior(self, state: LinearState) -> Posterior:
        """Return what is known of parameters."""
        made, level = frame(self.moments(state)), self.level(state)
        scale = self.link.prior_scale(self.rate(state))
        return posterior(state.information, state.scores, scale, made, level.shift)

    def level(self, state: LinearState) -> RewardLevel:
        """Return what all arms have in common at the mean context."""
        expected = self.spec.reward.base_rate
        made, rate = frame(self.moments(state)), 0.5 if expected is None else self.spec.reward.scaled(expected)[0]
        declared = self.link.product(rate) - self.link.centre
        return level_of(state.information, state.scores, self.link.prior_scale(rate), made, declared)

    @override
    def measured_rate(self, state: LinearState) -> MeasuredRate | None:
        level = self.level(state)
        if not state.reported or not level.sure:
            return None
        ends = (level.shift, *MeasuredRate.around(level.shift, abs(level.shift - level.sure)))
        return MeasuredRate.within(*(float(self.link.truths(np.array(self.link.centre + end))) for end in ends))

    @override
    def rate(self, state: LinearState) -> float:
        """Return the mean reward on the whole, nearer to 1/2 by a standard deviation."""
        found = float(self.link.truths(np.array(self.link.centre + self.level(state).sure)))
        return min(1 - _RATE, max(_RATE, found))

    @override
    def known(self, state: LinearState) -> tuple[Array, Array]:
        found = self.posterior(state)
        return self.centre() + found.means, found.covariances

    @override
    def matrices(self, state: LinearState) -> tuple[Array, Array]:
        """Return what makes directions, longest in features that are doubted, and what tells of second moments."""
        return self._doubted(state), self.contexts.telling

    def _doubted(self, state: LinearState) -> Array:
        """Return what makes features of variance 1, times the standard deviation of what is known of their slopes.

        A vector's length is shared out among its coordinates, and noise is the same on all: so most of it goes where
        least is known.
        """
        made = frame(self.moments(state))
        back = np.linalg.inv(made)
        variances = np.einsum("ij,kjl,il->i", back, self.posterior(state).covariances, back)
        return np.asarray(made * np.sqrt(variances / variances.max()))

    @override
    def learn(self, state: LinearState, policy: LinearPolicy, release: VectorSums) -> LinearState:
        """Return the state after a round's release: what it tells of second moments counts for its slopes, too.

        And for those of the latest rounds, which are read again: what residuals say depends on how contexts spread.
        Were they taken for what they seemed to say at first, a posterior would be surest where its matrices were off.
        """
        parts = release.sums.reshape(policy.classes, -1)
        after = self._with_contexts(state, policy, parts, release)
        latest = RoundResiduals(policy, parts[:, : policy.means.size], release.reports, release.noise)
        recent = state.recent or Recent(state.information, state.scores)
        statistics = [self.statistics(after, one, _AGAIN) for one in recent.rounds]
        statistics.append(self.statistics(after, latest, PEOPLE))
        recent, (information, scores) = recent.read([*recent.rounds, latest], statistics)
        reported = state.reported + release.reports
        return replace(after, reported=reported, information=information, scores=scores, recent=recent)

    def statistics(self, state: LinearState, residuals: RoundResiduals, drawn: int) -> Statistics:
        """Return what a round's residuals say of parameters, by what is known of contexts; so many people are drawn."""
        policy = residuals.policy
        rate = self.rate(state)
        found = slopes(policy, self.moments(state), drawn, rate * (1 - rate))
        classes, arms, d, _ = found.matrices.shape
        people = residuals.reports / classes
        share = 1 - policy.share
        means = residuals.sums.reshape(classes, arms, d) / (people * math.sqrt(share))
        covariances = policy.factors @ policy.factors.transpose(0, 2, 1)
        expected = np.einsum("ckij,kjl,ckil->ck", found.matrices, covariances, found.matrices) / d
        alike = residuals.noise / (share * people**2) + _LEAST / (d * people) + self.doubt(state) * expected
        precision = np.linalg.inv(alike[..., None, None] * np.eye(d) + found.spreads / people)
        before = policy.means - self.centre()
        observed = means - found.offsets + np.einsum("ckij,kj->cki", found.matrices, before)
        weighed = np.einsum("ckji,ckjl->ckil", found.matrices, precision)
        information = np.einsum("ckij,ckjl->kil", weighed, found.matrices)
        scores = np.einsum("ckij,ckj->ki", weighed, observed)
        return information, scores

    def _with_contexts(
        self, state: LinearState, policy: LinearPolicy, parts: Array, release: VectorSums
    ) -> LinearState:
        """Count in what people reported of second moments: their own spread is about 1, and noise comes to it."""
        if not policy.share:
            return state
        noise, sums = release.noise * policy.classes, parts[:, policy.means.size :].sum(axis=0)
        return replace(state, **self.contexts_learned(state, sums, release.reports, noise, policy.share))

    def contexts_learned(self, known: Known, sums: Array, people: int, noise: float, share: float) -> dict[str, Any]:
        """Return moments and precision with a sum counted in; ``noise`` is its variance in a coordinate."""
        moments, precision = self.contexts.weighed(sums, people, noise, share)
        return {"moments": known.moments + moments, "precision": known.precision + precision}


class ContinualLearner(ResidualLearner):
    """A learner that takes the rounds since noise began anew as one observation; each alone has too much noise."""

    @override
    def learn(self, state: LinearState, policy: LinearPolicy, release: VectorSums) -> LinearState:
        if not isinstance(release, RunningSums):
            return super().learn(state, policy, release)
        begun = state.running if state.running and release.step > 1 else Running.begun(state)
        own = policy.means.size
        context_sums = begun.context_sums + release.sums[own:]
        people = begun.people + release.reports
        known = replace(state, **self.contexts_learned(begun.before, context_sums, people, release.noise, policy.share))
        running = replace(self._run_on(begun, known, policy, release), context_sums=context_sums, people=people)
        information, scores = running.evidence(release.noise / (1 - policy.share))
        return replace(
            known,
            reported=state.reported + release.reports,
            information=information,
            scores=scores,
            running=running,
            recent=None,
        )

    def _run_on(self, begun: Running, known: LinearState, policy: LinearPolicy, release: RunningSums) -> Running:
        """Return the sums with a round's residuals counted in."""
        rate, people = self.rate(known), release.reports
        found = slopes(policy, self.moments(known), variance=rate * (1 - rate))
        arms, d = policy.means.shape
        sums = release.sums[: policy.means.size].reshape(arms, d) / math.sqrt(1 - policy.share)
        matrices = found.matrices[0]
        before = np.einsum("kij,kj->ki", matrices, policy.means - self.centre())
        covariances = policy.factors @ policy.factors.transpose(0, 2, 1)
        expected = np.einsum("kij,kjl,kil->k", matrices, covariances, matrices) / d
        return replace(
            begun,
            matrices=begun.matrices + people * matrices,
            observed=begun.observed + sums + people * (before - found.offsets[0]),
            spread=begun.spread + people * (np.trace(found.spreads[0], axis1=1, axis2=2) + _LEAST) / d,
            doubt=begun.doubt + people * np.sqrt(self.doubt(known) * expected),
        )


class JointLearner(LinearLearner):
    """Ridge regression on noisy second moments V and products u: theta = V^-1 u, with V's small eigenvalues raised.

    Eigenvalues of V below what noise alone has are raised to that, as they could be 0 or less (tau sqrt(2 d t) of a
    symmetric normal matrix with entries of standard deviation tau sqrt(t)).
    """

    @override
    def matrices(self, _state: LinearState) -> tuple[Array, Array]:
        """Return what makes rows at most 1 long."""
        scaled = np.eye(self.design.dimension) / self.design.length
        return scaled, scaled

    @override
    def known(self, state: LinearState) -> tuple[Array, Array]:
        """Return estimates, and the covariance that noise in the products gives them, in the rows' own lengths."""
        d, length = self.design.dimension, self.design.length
        noise = float(state.precision[0, 0])
        least = _RIDGE + math.sqrt(2 * d * noise) / MATRIX
        values, vectors = np.linalg.eigh(state.information)
        inverse = np.einsum("kij,kj,klj->kil", vectors, 1 / np.maximum(values, least), vectors)
        # Products are with 2 reward - 1; parameters are of the reward, and of rows that are not divided by a length.
        estimates = np.einsum("kij,kj->ki", inverse, state.scores) / (2 * length)
        spread = noise / PRODUCT**2 * inverse @ inverse + inverse
        means = self.link.scale * estimates + self.centre()
        covariances = spread * (self.link.scale / (2 * length)) ** 2
        return means, np.asarray((covariances + covariances.transpose(0, 2, 1)) / 2)

    @override
    def learn(self, state: LinearState, policy: LinearPolicy, release: VectorSums) -> LinearState:
        arms, d = policy.means.shape
        sums = release.sums.reshape(arms, -1)
        pairs = sums.shape[1] - d
        grams = np.stack([matrix_of(one, d) for one in sums[:, :pairs]]) / MATRIX
        return replace(
            state,
            reported=state.reported + release.reports,
            information=state.information + grams,
            scores=state.scores + sums[:, pairs:] / PRODUCT,
            precision=state.precision + release.noise,
        )


def learner(spec: LinearSpec) -> Learner:
    """Return the learner of a spec."""
    if spec.algorithm.report == "joint":
        return JointLearner(spec)
    return ContinualLearner(spec) if spec.steps else ResidualLearner(spec)
