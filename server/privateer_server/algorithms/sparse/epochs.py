"""Learns with a curator: every epoch chooses features that it does not know yet, and then has one block of moments."""

from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.sparse.policy import SparsePolicy
from privateer_core.answer import Answer
from privateer_core.answer.facts import Fact
from privateer_core.primitives.contributions import ScreenedSums
from privateer_core.primitives.questions import ScreenedSum
from privateer_server.algorithms.sparse.estimates import UNIFORM, Estimates, estimates, threshold
from privateer_server.algorithms.sparse.findings import Played, answered, coefficients, gain
from privateer_server.algorithms.sparse.rounds import SparseLearner, in_ball

Array = NDArray[np.float64]
Places = NDArray[np.int64]
_ALARM: Final = 0.01
"""Probability that features which do not correlate are taken to, at most: it costs little."""


@dataclass(frozen=True)
class EpochState:
    """What the server knows.

    Attributes
    ----------
    heard
        People whose reports opened.
    places
        Shape (k,): features of the block, int64, in order.
    people
        Number of people in the block.
    moments, variances
        Shape (arms + k + 1, arms + k + 1): the block of second moments, value last, and the variances of its noise.
    correlated
        Whether features have shown to correlate, or to be off the middle of their bounds.
    explored, followed
        What people had who got any arm, and those who got the best one since the block began.
    """

    heard: int
    places: Places
    people: int
    moments: Array
    variances: Array
    correlated: bool
    explored: Played
    followed: Played


class EpochLearner(SparseLearner[EpochState]):
    """Epochs of `privateer_core.mechanisms.screened_moments`, each of people of its own.

    Features whose coefficients are beyond chance are kept, ``sparsity`` of them at most. As long as there are fewer, an
    epoch chooses as many more by their products with the reward; where features correlate, by products with what is
    left of the reward, and one more even if there are enough: noisy hard thresholding, a step an epoch.
    """

    state_type = EpochState

    @override
    def blank(self) -> EpochState:
        arms = self.spec.arm_count
        nobody = Played(0, np.zeros(arms), np.zeros(arms), 0.0)
        size, none = (arms + 1, arms + 1), np.zeros(0, np.int64)
        return EpochState(0, none, 0, np.zeros(size), np.zeros(size), False, nobody, nobody)

    def estimates(self, state: EpochState) -> Estimates | None:
        """Return coefficients of arms and the block's features; None before any report."""
        return estimates(state.people, state.moments, state.variances) if state.people else None

    @override
    def decided(self, state: EpochState) -> dict[str, Any]:
        found, arms = self.estimates(state), self.spec.arm_count
        shrunk = np.zeros(arms) if found is None else found.shrunk
        values, intercepts = in_ball(shrunk[arms:], shrunk[:arms])
        used = values != 0
        return {"places": state.places[used], "coefficients": values[used], "intercepts": intercepts}

    def kept(self, state: EpochState) -> Places:
        """Return the features that matter beyond chance, in order; ``sparsity`` of them at most."""
        found = self.estimates(state)
        if found is None:
            return state.places
        ratios = found.ratios[self.spec.arm_count :]
        best = np.argsort(-ratios, kind="stable")[: self.spec.kept_most]
        beyond = best[ratios[best] > threshold(self.spec.arm_features)]
        return np.sort(state.places[beyond])

    @override
    def asked(self, state: EpochState, _seed: int) -> tuple[Places, ScreenedSum]:
        """Return the features that records have, and the question; those kept alone, once there are enough."""
        spec, kept = self.spec, self.kept(state)
        screened = min(spec.arm_features - len(kept), max(spec.kept_most - len(kept), int(state.correlated)))
        if not screened:
            places = tuple(range(len(kept)))
            return kept, replace(spec.question_about(len(kept), 0), kept=places)
        everything = np.arange(spec.arm_features)
        predicted = self._predicted(state, kept) if state.correlated else ()
        question = spec.question_about(spec.arm_features, 0)
        return everything, replace(question, kept=tuple(kept.tolist()), screened=screened, predicted=predicted)

    def _predicted(self, state: EpochState, kept: Places) -> tuple[float, ...]:
        """Return what is predicted of rewards by arms and by kept features."""
        found, arms = self.estimates(state), self.spec.arm_count
        assert found is not None, "correlation has been seen"
        values = found.shrunk[arms:][np.searchsorted(state.places, kept)]
        values, intercepts = in_ball(values, found.shrunk[:arms])
        return (*intercepts.tolist(), *values.tolist())

    @override
    def learn(self, state: EpochState, policy: SparsePolicy, release: ScreenedSums) -> EpochState:
        """Return the state after an epoch: blocks add up as long as they have the same features.

        A block says the same of coefficients whoever decided. What people had who got any arm, and those who got the
        best one, only an epoch tells whose people all did.
        """
        places, order = self._block(policy, release)
        moments, variances = (one[np.ix_(order, order)] for one in (release.moments, release.variances))
        people = release.reports
        shares = people * policy.playable / policy.playable.sum()
        had = Played(people, shares, moments[: self.spec.arm_count, -1], float(variances[0, -1]))
        explore = [one.explores for one, _ in policy.decided]
        correlated = state.correlated or (all(explore) and self._correlates(people, moments, variances))
        new = EpochState(
            heard=state.heard + people,
            places=places,
            people=people,
            moments=moments,
            variances=variances,
            correlated=correlated,
            explored=state.explored.merged(had) if all(explore) else state.explored,
            followed=state.followed if any(explore) else had,
        )
        return self._added(state, new, any(explore))

    def _added(self, state: EpochState, new: EpochState, explored: bool) -> EpochState:
        """Return the new state with the earlier block added, as far as its features are the same.

        A smaller round that has found nothing beyond chance among other features adds to those that were kept.
        """
        common = np.intersect1d(new.places, state.places)
        goes_on = state.people > 0 and len(common) == len(new.places)
        if not goes_on and not (len(common) and new.people < state.people and self._shows_nothing_new(new, common)):
            return new
        mine, theirs = (self._inside(one.places, common) for one in (new, state))
        return replace(
            new,
            places=common,
            people=state.people + new.people,
            moments=new.moments[mine] + state.moments[theirs],
            variances=new.variances[mine] + state.variances[theirs],
            followed=new.followed if explored else state.followed.merged(new.followed),
        )

    def _shows_nothing_new(self, new: EpochState, known: Places) -> bool:
        return bool(np.isin(self.kept(new), known).all())

    def _inside(self, places: Places, some: Places) -> tuple[NDArray[np.intp], ...]:
        """Return where in a block of ``places`` the block of ``some`` of them is."""
        coordinates = self._coordinates(np.searchsorted(places, some), len(places))
        return np.ix_(coordinates, coordinates)

    def _block(self, policy: SparsePolicy, release: ScreenedSums) -> tuple[Places, list[int]]:
        """Return the features of a release in order, and where they and all other coordinates are in its block."""
        mechanism: Any = policy.mechanism
        places = policy.asked[np.concatenate([np.array(mechanism.kept, np.int64), release.chosen])]
        order = np.argsort(places)
        return places[order], self._coordinates(order, len(places))

    def _coordinates(self, order: NDArray[np.intp], features: int) -> list[int]:
        """Return the coordinates of a block: arms, features in an order, and the value."""
        arms = self.spec.arm_count
        return [*range(arms), *(arms + order).tolist(), arms + features]

    def _correlates(self, people: int, moments: Array, variances: Array) -> bool:
        """Whether features correlate, or are off the middle of their bounds, beyond chance where people got any arm."""
        arms, size = self.spec.arm_count, len(moments) - 1
        of_all, noise = (one[:arms, arms:size].sum(axis=0) for one in (moments, variances))
        off = np.abs(of_all) / np.sqrt(noise + people * UNIFORM)
        pairs = arms + np.array(np.triu_indices(size - arms, 1))
        together = np.abs(moments[*pairs]) / np.sqrt(variances[*pairs] + people * UNIFORM**2)
        ratios = np.concatenate([off, together])
        return bool((ratios > threshold(len(ratios), _ALARM)).any())

    @override
    def answer(self, state: EpochState) -> Answer:
        """Return which features were found, their coefficients, and what the policy gains."""
        known, arms = self.estimates(state), self.spec.arm_count
        if known is None:
            return answered(state.heard, over=self.over(state))
        features = Estimates(known.values[arms:], known.deviations[arms:])
        facts = (
            Fact("features kept", len(self.kept(state)), "count"),
            Fact("features correlate", state.correlated, "yes or no"),
        )
        told = answered(
            state.heard, over=self.over(state), found=coefficients(self.spec, state.places, features), facts=facts
        )
        return msgspec.structs.replace(told, gain=gain(self.spec, state.explored, state.followed))

    @override
    def figures(self, state: EpochState) -> dict[str, float]:
        """Return how many features are kept."""
        return {"kept": float(len(self.kept(state)))}
