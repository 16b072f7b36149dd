"""Learners of linear and generalized linear bandits: by residuals, by their running sum, and by joint reports."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.linear.design_matrix import LINKS, unpack_moments
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.spec import LinearSpec
from privateer_core.answer import Answer
from privateer_core.answer.estimates import MeasuredRate
from privateer_core.answer.facts import Fact
from privateer_core.answer.parts import Figures
from privateer_core.arrays import Array, pad_arms
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.primitives.bounded_vectors import RunningSums, VectorSums
from privateer_core.primitives.row_ball import MOMENT_SCALE, PRODUCT_SCALE
from privateer_server.algorithms import Learner, NewRound, RoundsLearner
from privateer_server.algorithms.linear import posterior as posteriors
from privateer_server.algorithms.linear.context_moments import N_SIMULATED, Contexts, build_frame, compute_slopes

_MIN_SLOPE_DOUBT: Final = 0.01  # the least doubt about slopes
_N_REVISITED_SIMULATED: Final = 1 << 13  # people drawn for a round that is read again
_MIN_RESIDUAL_VARIANCE: Final = 1e-3  # variance of what people say of an arm, if none would be seen to play it
_RIDGE: Final = 1.0
_RARE_REWARD_SHARE: Final = 0.02  # the share of rewards, or of their absence, below which people explore more
_MIN_RATE: Final = 1e-4  # the least rate that is believed


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
    running: posteriors.ResidualSums | None = (
        None  # sums since noise began anew, where it depends on that of earlier rounds
    )
    # the rounds that are read again when more is known of contexts; what they say is part of ``information``, too
    recent: posteriors.RecentRounds | None = None


class LinearLearner(RoundsLearner[LinearSpec, LinearState, LinearPolicy]):
    """The rounds of a linear learner, which the spec fixes but for the reports on second moments."""

    state_type = LinearState
    publishes_result = False
    inherited_fields = ("algorithm", "experiment.arms", "experiment.retired_arms", "context.features", "reward")

    def __init__(self, spec: LinearSpec) -> None:
        super().__init__(spec)
        self.design, self.link = spec.design, LINKS[spec.algorithm.link]
        self.contexts = Contexts(self.design)

    @override
    def start(self, seed: int) -> LinearState:
        n_arms, d = self.spec.arm_count, self.design.dimension
        return LinearState(0, np.zeros((n_arms, d, d)), np.zeros((n_arms, d)), np.zeros((d, d)), np.zeros((d, d)))

    @abstractmethod
    def estimate_parameters(self, state: LinearState) -> tuple[Array, Array]:
        """Return means (arms, d) and covariances (arms, d, d) of parameters."""

    @abstractmethod
    def direction_matrices(self, state: LinearState) -> tuple[Array, Array]:
        """Return the matrices that map rows to directions, and to second moments, (d, d) each."""

    @override
    def policy(self, state: LinearState, next_round: NewRound) -> LinearPolicy:
        """Return the policy of a round, or the arm with the largest mean for all if it has no reports."""
        spec, (means, covariances) = self.spec, self.estimate_parameters(state)
        playable_arms = np.flatnonzero(spec.playable)
        favoured_arm = int(playable_arms[next_round.version % len(playable_arms)])
        whitening, moment_matrix = self.direction_matrices(state)
        return LinearPolicy(
            version=next_round.version,
            design=self.design,
            link=spec.algorithm.link,
            means=means,
            factors=np.asarray(np.linalg.cholesky(covariances), np.float64),
            whitening=whitening,
            telling=moment_matrix,
            exploration=self.exploration(state) if next_round.batch_size else 0.0,
            playable=np.array(spec.playable),
            # Before anybody has reported nothing but coins chooses, so that one round can ask about all arms.
            favours=favoured_arm if spec.has_favoured_arm and state.reported else -1,
            share=spec.moment_share,
            seed=next_round.seed,
            terms=self.calibrate_terms(next_round, spec.make_question(next_round.seed)),
        )

    def overall_mean_reward(self, state: LinearState) -> float:
        """Return the overall mean reward, as far as it is known to differ from 1/2."""
        del state
        return 0.5

    def exploration(self, state: LinearState) -> float:
        """Return the scale of posterior samples, in standard deviations: 1 where rewards are rare.

        There a few rewards mislead, and less would leave some runs with a wrong arm for good.
        """
        rate = self.overall_mean_reward(state)
        return 1.0 if min(rate, 1 - rate) < _RARE_REWARD_SHARE else self.spec.algorithm.exploration_scale

    @override
    def apply_arm_change(self, state: LinearState, old_spec: LinearSpec) -> LinearState:
        n_added = self.spec.arm_count - old_spec.arm_count
        information, scores = pad_arms(state.information, n_added), pad_arms(state.scores, n_added)
        return replace(state, information=information, scores=scores, recent=state.recent if not n_added else None)

    @override
    def keep_evidence_only(self, state: LinearState) -> LinearState:
        return replace(state, reported=0, recent=None)

    @override
    def figures(self, state: LinearState) -> dict[str, float]:
        """Return the standard error of a mean reward, averaged over arms and participants."""
        variances = np.einsum("kij,ij->k", self.estimate_parameters(state)[1], self.contexts.assumed)
        return {"uncertainty": self.spec.reward.span * float(np.sqrt(variances).mean()) / self.link.scale}

    @override
    def answer(self, state: LinearState) -> Answer:
        """Return the standard error of mean rewards; the policy has all other findings."""
        error = Fact("typical error of a mean reward", round(self.figures(state)["uncertainty"], 4), "number")
        return self.build_answer(state, parts=(Figures("what is known", (error,)),) if state.reported else ())

    @override
    def build_expected_rewards(self, state: LinearState) -> ExpectedRewards | None:
        if not state.information.any():
            return None
        means, covariances = self.estimate_parameters(state)
        reward, link = self.spec.reward, self.link

        def predict(contexts: Array) -> tuple[Array, Array]:
            rows = self.design.rows(contexts)
            products = rows @ means.T
            deviations = np.sqrt(np.maximum(np.einsum("nd,kde,ne->nk", rows, covariances, rows, optimize=True), 0.0))
            reward_deviations = reward.span * link.derivatives(products) * deviations
            return reward.unscaled(np.clip(link.unclipped_means(products), 0.0, 1.0)), reward_deviations

        def standard_error(contexts: Array, weights: Array) -> float:
            rows = self.design.rows(contexts)
            sums = (weights * link.derivatives(rows @ means.T)).T @ rows
            return reward.span * float(np.sqrt(max(0.0, np.einsum("kd,kde,ke->", sums, covariances, sums))))

        return ExpectedRewards.from_single_box(self.spec.dimension, predict, standard_error)

    def centre(self) -> Array:
        """Return the prior's mean of an arm's parameter, (d,)."""
        return np.asarray(self.link.centre * np.eye(1, self.design.dimension)[0])


class ResidualLearner(LinearLearner):
    """Regression on means of residuals, whose slopes follow from second moments of contexts (`surrogate.slopes`)."""

    def moments(self, state: LinearState) -> Array:
        """Return second moments of contexts: observed and prior moments, averaged by precision."""
        return self.contexts.build_row_moments(self.contexts.estimate_features(state.moments, state.precision))

    def doubt(self, state: LinearState) -> float:
        """Return the squared relative error of slopes, which is that of second moments."""
        return min(1.0, max(_MIN_SLOPE_DOUBT, self.contexts.estimate_features(state.moments, state.precision).doubt))

    def posterior(self, state: LinearState) -> posteriors.Posterior:
        """Return the posterior of parameters."""
        frame_matrix, level = build_frame(self.moments(state)), self.level(state)
        scale = self.link.prior_scale(self.overall_mean_reward(state))
        return posteriors.fit_posterior(state.information, state.scores, scale, frame_matrix, level.shift)

    def level(self, state: LinearState) -> posteriors.RewardLevel:
        """Return the arms' common level at the mean context."""
        base_rate = self.spec.reward.base_rate
        rate = 0.5 if base_rate is None else self.spec.reward.scale_and_clip(base_rate)[0]
        frame, scale = build_frame(self.moments(state)), self.link.prior_scale(rate)
        declared = self.link.linear_predictor(rate) - self.link.centre
        return posteriors.estimate_level(state.information, state.scores, scale, frame, declared)

    @override
    def measured_rate(self, state: LinearState) -> MeasuredRate | None:
        level = self.level(state)
        if not state.reported or not level.min_shift:
            return None
        shifts = np.array([level.shift, *MeasuredRate.around(level.shift, abs(level.shift - level.min_shift))])
        return MeasuredRate.within(*self.link.unclipped_means(self.link.centre + shifts).tolist())

    @override
    def overall_mean_reward(self, state: LinearState) -> float:
        """Return the overall mean reward, one standard deviation nearer to 1/2."""
        rate = float(self.link.unclipped_means(np.array(self.link.centre + self.level(state).min_shift)))
        return min(1 - _MIN_RATE, max(_MIN_RATE, rate))

    @override
    def estimate_parameters(self, state: LinearState) -> tuple[Array, Array]:
        posterior = self.posterior(state)
        return self.centre() + posterior.means, posterior.covariances

    @override
    def direction_matrices(self, state: LinearState) -> tuple[Array, Array]:
        """Return the matrices that map rows to directions, by their doubt, and to second moments.

        A vector's length is shared out among its coordinates, and noise is the same on all: so most of it goes where
        least is known. A curator's records have a single row for both.
        """
        if self.spec.row_ball:
            matrix = self.contexts.weigh_features(
                self._variances(state, self.contexts.whitening_map), self.moments(state)
            )
            return matrix, matrix
        frame_matrix = build_frame(self.moments(state))
        variances = self._variances(state, frame_matrix)
        return np.asarray(frame_matrix * np.sqrt(variances / variances.max())), self.contexts.moment_matrix

    def _variances(self, state: LinearState, frame_matrix: Array) -> Array:
        """Return the posterior variances, (d,), of the parameters of a frame's coordinates."""
        inverse_frame = np.linalg.inv(frame_matrix)
        covariances = self.posterior(state).covariances
        return np.asarray(np.einsum("ij,kjl,il->i", inverse_frame, covariances, inverse_frame))

    @override
    def learn(self, state: LinearState, policy: LinearPolicy, release: VectorSums) -> LinearState:
        """Return the state after a round's release, with the slopes of recent rounds estimated again.

        The slopes of residuals depend on the moments of contexts, of which every round tells more. With the slopes as
        they were first estimated, a posterior would be surest where these were wrong.
        """
        parts = release.sums.reshape(policy.classes, -1)
        new_state = self._add_contexts(state, policy, parts, release)
        latest = posteriors.RoundResiduals(policy, parts[:, : policy.means.size], release.reports, release.noise)
        recent = state.recent or posteriors.RecentRounds(state.information, state.scores)
        statistics = [self.fit_statistics(new_state, residuals, _N_REVISITED_SIMULATED) for residuals in recent.rounds]
        statistics.append(self.fit_statistics(new_state, latest, N_SIMULATED))
        recent, (information, scores) = recent.keep_latest_rounds([*recent.rounds, latest], statistics)
        reported = state.reported + release.reports
        return replace(new_state, reported=reported, information=information, scores=scores, recent=recent)

    def fit_statistics(
        self, state: LinearState, residuals: posteriors.RoundResiduals, n_simulated: int
    ) -> posteriors.Statistics:
        """Return the statistics of parameters from a round's residuals, by simulation of participants."""
        policy = residuals.policy
        rate = self.overall_mean_reward(state)
        slopes = compute_slopes(policy, self.moments(state), n_simulated, rate * (1 - rate))
        classes, n_arms, d, _ = slopes.matrices.shape
        n_reports = residuals.reports / classes
        share = 1 - policy.share
        means = residuals.sums.reshape(classes, n_arms, d) / (n_reports * math.sqrt(share))
        covariances = policy.factors @ policy.factors.transpose(0, 2, 1)
        mean_squares = np.einsum("ckij,kjl,ckil->ck", slopes.matrices, covariances, slopes.matrices) / d
        noise = residuals.noise / (share * n_reports**2) + _MIN_RESIDUAL_VARIANCE / (d * n_reports)
        isotropic_variance = noise + self.doubt(state) * mean_squares
        precision = np.linalg.inv(isotropic_variance[..., None, None] * np.eye(d) + slopes.spreads / n_reports)
        prior_means = policy.means - self.centre()
        observed = means - slopes.offsets + np.einsum("ckij,kj->cki", slopes.matrices, prior_means)
        weighted = np.einsum("ckji,ckjl->ckil", slopes.matrices, precision)
        return np.einsum("ckij,ckjl->kil", weighted, slopes.matrices), np.einsum("ckij,ckj->ki", weighted, observed)

    def _add_contexts(self, state: LinearState, policy: LinearPolicy, parts: Array, release: VectorSums) -> LinearState:
        """Return the state with the second moments of a round's contexts, whose own variance is about 1."""
        if not policy.share:
            return state
        noise, sums = release.noise * policy.classes, parts[:, policy.means.size :].sum(axis=0)
        scales = release.reports * self.contexts.moment_scales(policy.telling, policy.share)
        return replace(state, **self.add_context_sums(state, sums, scales, release.reports, noise))

    def add_context_sums(
        self, base: LinearState | posteriors.BaseStatistics, sums: Array, scales: Array, people: int, noise: float
    ) -> dict[str, Any]:
        """Return the fields ``moments`` and ``precision`` after a sum of contexts with noise of this variance."""
        moments, precision = self.contexts.weigh_sums(sums, scales, people, noise)
        return {"moments": base.moments + moments, "precision": base.precision + precision}


class ContinualLearner(ResidualLearner):
    """A learner that takes all rounds of a continual release as one observation."""

    @override
    def learn(self, state: LinearState, policy: LinearPolicy, release: VectorSums) -> LinearState:
        if not isinstance(release, RunningSums):
            return super().learn(state, policy, release)
        before = posteriors.BaseStatistics(state.information, state.scores, state.moments, state.precision)
        sums = state.running if state.running and release.step > 1 else posteriors.ResidualSums.start(before)
        n_means = policy.means.size
        pairs = sums.context_sums + release.sums[n_means:]
        people = sums.people + release.reports
        scales = sums.context_scales + release.reports * self.contexts.moment_scales(policy.telling, policy.share)
        new_state = replace(state, **self.add_context_sums(sums.before, pairs, scales, people, release.noise))
        running = replace(
            self._add_round_residuals(sums, new_state, policy, release),
            context_sums=pairs,
            context_scales=scales,
            people=people,
        )
        information, scores = running.information_and_scores(release.noise / (1 - policy.share))
        reported, evidence = state.reported + release.reports, {"information": information, "scores": scores}
        return replace(new_state, reported=reported, **evidence, running=running, recent=None)

    def _add_round_residuals(
        self, sums: posteriors.ResidualSums, state: LinearState, policy: LinearPolicy, release: RunningSums
    ) -> posteriors.ResidualSums:
        """Add a round's sums of rewards less what the policy's own means explain, and the matrices that scale them."""
        rate, n_reports = self.overall_mean_reward(state), release.reports
        slopes = compute_slopes(policy, self.moments(state), variance=rate * (1 - rate))
        n_arms, d = policy.means.shape
        round_sums = release.sums[: policy.means.size].reshape(n_arms, d) / math.sqrt(1 - policy.share)
        matrices = slopes.matrices[0]
        policy_means = np.einsum("kij,kj->ki", matrices, policy.means - self.centre())
        covariances = policy.factors @ policy.factors.transpose(0, 2, 1)
        mean_squares = np.einsum("kij,kjl,kil->k", matrices, covariances, matrices) / d
        spread = n_reports * (np.trace(slopes.spreads[0], axis1=1, axis2=2) + _MIN_RESIDUAL_VARIANCE) / d
        return replace(
            sums,
            matrices=sums.matrices + n_reports * matrices,
            observed=sums.observed + round_sums + n_reports * (policy_means - slopes.offsets[0]),
            spread=sums.spread + spread,
            doubt=sums.doubt + n_reports * np.sqrt(self.doubt(state) * mean_squares),
        )


class JointLearner(LinearLearner):
    """Ridge regression on noisy second moments V and products u: theta = V^-1 u, with V's small eigenvalues raised.

    Eigenvalues of V below what noise alone has are raised to that, as they could be 0 or less (tau sqrt(2 d t) of a
    symmetric normal matrix with entries of standard deviation tau sqrt(t)).
    """

    @override
    def direction_matrices(self, _state: LinearState) -> tuple[Array, Array]:
        """Return the matrices that scale rows to a length of at most 1."""
        scaled = np.eye(self.design.dimension) / self.design.max_norm
        return scaled, scaled

    @override
    def estimate_parameters(self, state: LinearState) -> tuple[Array, Array]:
        """Return estimates, and the covariance that noise in the products gives them, in the rows' own lengths."""
        d, length = self.design.dimension, self.design.max_norm
        noise = float(state.precision[0, 0])
        min_eigenvalue = _RIDGE + math.sqrt(2 * d * noise) / MOMENT_SCALE
        values, vectors = np.linalg.eigh(state.information)
        inverse = np.einsum("kij,kj,klj->kil", vectors, 1 / np.maximum(values, min_eigenvalue), vectors)
        # Products are with 2 reward - 1; parameters are of the reward, and of rows that are not divided by a length.
        estimates = np.einsum("kij,kj->ki", inverse, state.scores) / (2 * length)
        spread = noise / PRODUCT_SCALE**2 * inverse @ inverse + inverse
        means = self.link.scale * estimates + self.centre()
        covariances = spread * (self.link.scale / (2 * length)) ** 2
        return means, np.asarray((covariances + covariances.transpose(0, 2, 1)) / 2)

    @override
    def learn(self, state: LinearState, policy: LinearPolicy, release: VectorSums) -> LinearState:
        n_arms, d = policy.means.shape
        sums = release.sums.reshape(n_arms, -1)
        pairs = sums.shape[1] - d
        grams = np.stack([unpack_moments(row, d) for row in sums[:, :pairs]]) / MOMENT_SCALE
        return replace(
            state,
            reported=state.reported + release.reports,
            information=state.information + grams,
            scores=state.scores + sums[:, pairs:] / PRODUCT_SCALE,
            precision=state.precision + release.noise,
        )


def learner(spec: LinearSpec) -> Learner:
    """Return the learner of a spec."""
    if spec.algorithm.report_statistic == "joint":
        return JointLearner(spec)
    return ContinualLearner(spec) if spec.n_releases else ResidualLearner(spec)
