"""The partition bandit (paper 1): its spec, and its policy, a partition of contexts with active arms in its bins."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self, cast

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from privateer.ages import age_of
from privateer.algorithms import Algorithm
from privateer.coins import UNIT, EarlierChoices, Layout
from privateer.context import shown_box
from privateer.contributions import KeyedSums, KeyedValues
from privateer.decisions import Arms
from privateer.draw import Draw
from privateer.errors import Malformed, SpecError
from privateer.mechanisms import KeyedMechanism
from privateer.mechanisms.base import KeyedTotal
from privateer.numbers import scaled_reward
from privateer.policy import Counted
from privateer.questions import KeyedMeans
from privateer.sections import Section, parse_section
from privateer.spec import ArmsSpec, example_promises
from privateer.terms import Terms

MEMORIES: Final = (math.inf, 30_000.0, 10_000.0, 3_000.0)
"""Half-lives in people, of which ``memory = "auto"`` uses the one that predicts best."""
_MEMORY_MAX: Final = 1e12
_ROUND_MAX: Final = 2000
_ROUND_SHARE: Final = 0.2
"""Rounds of more people, and of more than this share of the shortest half-life, are slow to notice what moves."""
DEPTH_MAX: Final = 40
"""Deepest bin: paths are integers of this many bits."""
_PRIMES: Final = np.array([p for p in range(2, 174) if all(p % q for q in range(2, p))])
_INSIDE: Final = np.modf(np.arange(1, 65)[:, None] * np.sqrt(_PRIMES))[0]
"""64 places spread over a unit cube of up to 40 columns."""


class PartitionSection(Section):
    """The ``[algorithm]`` of the partition bandit.

    Attributes
    ----------
    confidence
        ``practical``: tuned radii. ``proved``: union bounds, valid if every arm's mean reward is Lipschitz with
        constant ``lipschitz`` (rewards and features scaled to [0, 1], Euclidean norm) and the density of contexts is
        at most ``density_bound``.
    failure
        Under ``proved``, the probability that an arm is ever dropped where it is best.
    memory
        How what was learned fades, where rewards move: people after whose reports it counts half; ``auto``: whichever
        of `MEMORIES` predicts best; ``none``, as if not given: it never fades.
    """

    name: Literal["partition"]
    confidence: Literal["practical", "proved"] = "practical"
    lipschitz: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    density_bound: float = Field(default=1.0, ge=1, allow_inf_nan=False)
    failure: float = Field(default=0.05, gt=0, lt=1)
    memory: float | Literal["auto", "none"] | None = None

    @field_validator("memory", mode="before")
    @classmethod
    def _half_life(cls, memory: Any) -> Any:
        number = isinstance(memory, int | float) and not isinstance(memory, bool)
        if memory is None or memory in ("auto", "none") or (number and 1 <= memory <= _MEMORY_MAX):
            return memory
        detail, remedy = 'must be a number of people from 1 on, "auto" or "none"', "give the half-life, or remove it"
        raise SpecError(detail, field="algorithm.memory", remedy=remedy)

    @property
    def half_lives(self) -> tuple[float, ...]:
        """Half-lives that a learner keeps side by side, in people, the endless one first; empty without memory."""
        if self.memory is None or self.memory == "none":
            return ()
        return MEMORIES if self.memory == "auto" else (math.inf, self.memory)


class PartitionSpec(ArmsSpec):
    """An experiment with the partition bandit."""

    recalls: ClassVar[bool] = True

    algorithm: PartitionSection  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _can_forget(self) -> Self:
        section, field = self.algorithm, "algorithm.memory"
        if not section.half_lives:
            return self
        if self.privacy.calibration == "published":
            raise SpecError("not part of the published calibration", field=field, remedy="remove it")
        if section.confidence == "proved":
            detail = "must not be given where confidence is proved: bounds hold if nothing moves"
            raise SpecError(detail, field=field, remedy='remove it, or set algorithm.confidence = "practical"')
        if min(section.half_lives) < self.experiment.round_size:
            shortest = f"half-lives, {min(section.half_lives):,.0f} people at the least, "
            detail = shortest + "must not be below experiment.round_size: nothing is learned before a round closes"
            raise SpecError(detail, field=field, remedy="lower experiment.round_size, or give a longer half-life")
        return self

    def concerns(self) -> list[str]:
        """Say that rounds are too large for the memory, if they are."""
        if not self.algorithm.half_lives:
            return []
        most = max(_ROUND_MAX, math.floor(_ROUND_SHARE * min(self.algorithm.half_lives)))
        if (largest := self.largest_batch()) <= most:
            return []
        return [
            f"with algorithm.memory rounds of up to {largest:,} people are too large: what moves is not noticed before "
            f"a round closes. Lower experiment.round_growth or round_size, so that none has more than {most:,}"
        ]

    def usual_question(self) -> KeyedMeans:
        """Return a question as the first round asks it, without its public coins."""
        return KeyedMeans(Layout(0, np.zeros((0, self.arm_count - 1), np.uint32)))

    @classmethod
    def instances(cls) -> dict[str, Self]:
        """Return small instances by name, under every trust model and calibration."""
        promises = {str(promise["model"]): promise for promise in example_promises()}
        made = {name: cls._instance(promise) for name, promise in promises.items()}
        made |= {
            f"{name}-hidden": cls._instance(promises[name] | {"arms": "hidden"})
            for name, spec in made.items()
            if spec.privacy.arm_in_key
        }
        made |= {f"{name}-proved": cls._instance(spec.privacy, confidence="proved") for name, spec in made.items()}
        made |= {f"{name}-memory": cls._instance(promise, memory="auto") for name, promise in promises.items()}
        published = {"model": "local", "epsilon": 16.0, "calibration": "published"}
        return made | {"published": cls._instance(published)}

    @classmethod
    def _instance(cls, privacy: Any, **algorithm: Any) -> Self:
        unit = {"low": 0.0, "high": 1.0}
        data = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 20_000, "round_growth": 0.1},
            "context": {"features": {"x1": unit, "x2": unit}},
            "privacy": privacy,
            "algorithm": {"name": "partition", **algorithm},
        }
        return parse_section(cls, data)


@dataclass(frozen=True)
class PartitionPolicy:
    """Bins of a dyadic partition (paper 1, Section 2.3.2), their active arms, and who reports about which.

    A bin of depth s is named by its path, s bits: bit i tells the half along dimension ``axes[i]``. Cycling through the
    dimensions always halves a longest edge (the paper's max-edge rule, with ties to the lowest dimension).

    Attributes
    ----------
    version
        The policy's version, from 1.
    dimension
        Number of columns of an encoded context, d.
    axes
        Shape (`DEPTH_MAX`,), int64: column that every level halves.
    depths, paths
        Shape (bins,), int64: the bins in order of their paths.
    active
        Shape (bins, arms), bool: at least one in every bin.
    bins
        Shape (undecided,), int64: the bins whose people are asked; people of other bins have nothing to tell.
    terms
        How reports of this version are randomized. The layout of the mechanism says what the coins of a report mean.
    choice
        What the coins of a choice mean, where the arm is in the key of a report; None: they are those of the report.
    cohort
        Whose turn it is to report: a source's name; empty for the experiment's own people.
    """

    version: int
    dimension: int
    axes: NDArray[np.int64]
    depths: NDArray[np.int64]
    paths: NDArray[np.int64]
    active: NDArray[np.bool_]
    bins: NDArray[np.int64]
    terms: Terms
    choice: Layout | None = None
    cohort: str = ""

    draw: ClassVar[Draw | None] = None
    """Whoever comes is asked."""

    @property
    def mechanism(self) -> KeyedMechanism:
        """What randomizes, adds up and releases the round's reports."""
        return cast(KeyedMechanism, self.terms.mechanism)

    @property
    def layout(self) -> Layout:
        """What the coins of a choice mean: the keys are the entries of ``bins``, the groups are arms."""
        return self.mechanism.layout if self.choice is None else self.choice

    @property
    def fresh_coins(self) -> bool:
        """Whether a report has coins of its own.

        Where the arm is in the key, every active arm of every entry of ``bins`` is a key (`cells`), and coins decide
        nothing but its sign and bucket. Otherwise a report carries the coins of the choice.
        """
        return self.choice is not None

    @property
    def tells_age(self) -> bool:
        """Whether a report says how many versions ago its decision was made: where its coins chose the arm.

        Those of a batch never do: their ages would tell them apart. Nor do reports that measure all arms at once.
        """
        alike = self.fresh_coins or self.terms.trust.batched or self.terms.calibration == "published"
        return not alike and not self.cohort

    def takes(self, decided: int) -> bool:
        """Whether the round takes reports on what the policy of version ``decided`` decided."""
        if self.terms.trust.batched and not self.fresh_coins:
            return decided == self.version
        return age_of(self.version, decided) is not None if self.tells_age else decided <= self.version

    def analyzer(self, earlier: "PartitionPolicy") -> "Counted | ByChoices":
        """Return what counts reports on decisions of an ``earlier`` policy, or of this one."""
        if earlier.version == self.version or not self.tells_age:
            return Counted()
        return ByChoices(self._choices_of(earlier), self.layout.groups)

    def _choices_of(self, earlier: "PartitionPolicy") -> EarlierChoices:
        """Return what the coins of an earlier choice mean at the keys of this policy.

        There is one more group, the last: of all coins at a key whose bin was not whole then, so that what they chose
        there depends on more than the key.
        """
        arms = self.active.shape[1]
        bins = self._bins_of(earlier)
        keys = np.where(bins >= 0, earlier._key_of_bin[bins], -1)
        thresholds = np.zeros((len(bins), arms), np.uint32)
        # Where nothing was asked the only active arm was played.
        only = earlier.active[bins].argmax(axis=1)
        thresholds[:, :-1] = np.where(np.arange(arms - 1)[None, :] < only[:, None], 0, UNIT)
        asked = keys >= 0
        # Arms that were added since were played by nobody, as in the rows of those who were not asked.
        thresholds[asked, : earlier.active.shape[1] - 1] = earlier.layout.thresholds[keys[asked]]
        thresholds[:, -1] = UNIT
        thresholds[bins < 0] = 0
        return EarlierChoices(self.layout.seed, thresholds, earlier.layout, np.maximum(keys, 0))

    def _bins_of(self, earlier: "PartitionPolicy") -> NDArray[np.int64]:
        """Return the bin of an earlier policy that holds each entry of ``bins``; -1 where none does, as a whole."""
        starts, depths = self._starts[self.bins], self.depths[self.bins]
        found = np.asarray(np.searchsorted(earlier._starts, starts, side="right") - 1)
        alike = np.flatnonzero(earlier.axes != self.axes)
        levels = int(alike[0]) if len(alike) else DEPTH_MAX
        whole = (earlier.depths[found] <= depths) & (earlier.depths[found] <= levels)
        return np.where(whole, found, -1)

    def followed(self, decided: Sequence[tuple["PartitionPolicy", float]]) -> "PartitionPolicy":
        """Return the policy as a learner must see it when reports were on decisions of several policies.

        Where the arm is in the key the share of a bin's people who played each arm counts: that of all policies
        together. Otherwise reports say themselves what their coins meant.
        """
        if not self.fresh_coins or all(policy.version == self.version for policy, _ in decided):
            return self
        shares = sum(weight * self._shares_of(policy) for policy, weight in decided)
        edges = np.cumsum(shares, axis=1)[:, :-1] / np.sum(shares, axis=1, keepdims=True)
        thresholds = np.minimum(np.rint(edges * UNIT), UNIT).astype(np.uint32)
        return replace(self, choice=Layout(self.layout.seed, thresholds))

    def _shares_of(self, earlier: "PartitionPolicy") -> NDArray[np.float64]:
        """Return the share of the people of each entry of ``bins`` to whom a policy gave each arm, (keys, arms)."""
        bins, (lower, upper) = self._bins_of(earlier), [corner[self.bins] for corner in self.edges()]
        shares = earlier.shares[bins]
        for place in np.flatnonzero(bins < 0).tolist():
            inside = earlier.locate(lower[place] + (upper - lower)[place] * _INSIDE[:, : self.dimension])
            shares[place] = earlier.shares[inside].mean(axis=0)
        added = self.active.shape[1] - earlier.active.shape[1]
        return np.pad(shares, ((0, 0), (0, added)))

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """Entry of ``bins``, and arm, of every pair that is asked about; shape (cells, 2), in order."""
        return np.argwhere(self.active[self.bins])

    def check(self, spec: PartitionSpec) -> None:
        """Refuse a policy that no learner makes: a device must not crash on, or be steered by, a malformed one.

        Raises
        ------
        Malformed
            If the bins do not tile the space, an array has the wrong shape or range, or the spec says otherwise.
        """
        typed = isinstance(self.mechanism, KeyedMechanism) and self._well_typed(spec.arm_count)
        if not (typed and self._tiles() and self._plays_active_arms() and self._agrees(spec)):
            raise Malformed("not a partition policy", remedy="fetch the policy again")

    def _agrees(self, spec: PartitionSpec) -> bool:
        """Whether the spec has these sizes, and reports are about what it says."""
        same = self.dimension == spec.dimension and self.cohort in spec.cohorts
        same = same and not self.active[:, ~np.array(spec.playable)].any()
        expected = (len(self.cells), 1) if self.fresh_coins else (len(self.bins), spec.arm_count)
        reported = self.mechanism.layout
        asked = self.fresh_coins == spec.privacy.arm_in_key and (reported.keys, reported.groups) == expected
        return same and (asked or self.terms.batch == 0)

    def _well_typed(self, arms: int) -> bool:
        bins, keys = self.depths.shape[:1], self.bins.shape[:1]
        expected = (
            (self.axes, np.int64, (DEPTH_MAX,)),
            (self.depths, np.int64, bins),
            (self.paths, np.int64, bins),
            (self.active, np.bool_, (*bins, arms)),
            (self.bins, np.int64, keys),
            (self.layout.thresholds, np.uint32, (*keys, arms - 1)),
        )
        typed = all(array.dtype == dtype and array.shape == shape for array, dtype, shape in expected)
        named = typed and self.dimension >= 1 and np.min(self.axes) >= 0 and np.max(self.axes) < self.dimension
        return bool(named) and bins > (0,)

    def _tiles(self) -> bool:
        if np.min(self.depths) < 0 or np.max(self.depths) > DEPTH_MAX or np.min(self.paths) < 0:
            return False
        if bool((self.paths >> self.depths).any()):
            return False
        ends = self._starts + (1 << (DEPTH_MAX - self.depths))
        return bool(self._starts[0] == 0 and ends[-1] == 1 << DEPTH_MAX and (self._starts[1:] == ends[:-1]).all())

    def _plays_active_arms(self) -> bool:
        """Whether there is an arm everywhere, keys are distinct bins, and their coins lead to active arms."""
        if not self.active.any(axis=1).all() or len(np.unique(self.bins)) != len(self.bins):
            return False
        if len(self.bins) and (np.min(self.bins) < 0 or np.max(self.bins) >= len(self.depths)):
            return False
        thresholds = self.layout.thresholds.astype(np.int64)
        rising = bool((np.diff(thresholds, axis=1) >= 0).all() and (thresholds <= UNIT).all())
        return rising and not bool((self.layout.shares[~self.active[self.bins]] > 0).any())

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return self.paths << (DEPTH_MAX - self.depths)

    @cached_property
    def _key_of_bin(self) -> NDArray[np.int64]:
        keys = np.full(len(self.depths), -1, dtype=np.int64)
        keys[self.bins] = np.arange(len(self.bins))
        return keys

    def locate(self, contexts: NDArray[np.float64]) -> NDArray[np.int64]:
        """Bin of each context; ``contexts`` (n, d) in [0, 1], result (n,)."""
        deepest = int(np.max(self.depths))
        path = np.zeros(len(contexts), dtype=np.int64)
        left = np.bincount(self.axes[:deepest], minlength=contexts.shape[1])
        cells = np.minimum((contexts * (1 << left)).astype(np.int64), (1 << left) - 1)
        for axis in self.axes[:deepest]:
            left[axis] -= 1
            path = (path << 1) | ((cells[:, axis] >> left[axis]) & 1)
        return np.asarray(np.searchsorted(self._starts, path << (DEPTH_MAX - deepest), side="right") - 1)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Probability of each arm in every bin, over coins, shape (bins, arms)."""
        shares = self.active / self.active.sum(axis=1, keepdims=True)
        shares[self.bins] = self.layout.shares
        return np.asarray(shares)

    def decide(self, contexts: NDArray[np.float64], coins: NDArray[np.uint32]) -> Arms:
        """Decide for n people: the only active arm of the bin, or the one that the coins have there."""
        bins = self.locate(contexts)
        arms = np.asarray(self.active[bins].argmax(axis=1))
        keys = self._key_of_bin[bins]
        asked = np.flatnonzero(keys >= 0)
        hashes = self.layout.hashes(coins[asked], keys[asked])
        arms[asked] = self.layout.group(hashes, keys[asked])
        return Arms(arms)

    @cached_property
    def _key_of_cell(self) -> NDArray[np.int64]:
        """Key of every entry of ``bins`` and arm; the last row is for people of other bins."""
        keys = np.full((len(self.bins) + 1, self.active.shape[1]), -1, dtype=np.int64)
        keys[self.cells[:, 0], self.cells[:, 1]] = np.arange(len(self.cells))
        return keys

    def contribute(
        self, contexts: NDArray[np.float64], coins: NDArray[np.uint32], decisions: Arms, rewards: NDArray[np.float64]
    ) -> KeyedValues:
        """Return what n people have to contribute about their arms and rewards.

        Parameters
        ----------
        contexts
            Shape (n, d), in [0, 1].
        coins
            Shape (n,): those that chose the arms; with `fresh_coins`, coins drawn for the reports alone.
        decisions
            What `decide` returned.
        rewards
            Shape (n,), in [0, 1].
        """
        keys = self._key_of_bin[self.locate(contexts)]
        if self.fresh_coins:
            return KeyedValues(coins, self._key_of_cell[keys, decisions.arms], np.zeros_like(keys), rewards)
        return KeyedValues(coins, keys, decisions.arms, rewards)

    def recall(
        self,
        contexts: NDArray[np.float64],
        coins: NDArray[np.uint32],
        arms: NDArray[np.int64],
        rewards: NDArray[np.float64],
    ) -> KeyedValues:
        """Return what n people of a source have to contribute about arms (n,) that they played before: secret ones.

        Where the arm is not in the key, coins ask about one arm of every bin, and those who played another have
        nothing to contribute. Under the published mechanism everybody contributes.
        """
        values = self.contribute(contexts, coins, Arms(arms), rewards)
        if self.fresh_coins or self.terms.calibration == "published":
            return values
        asked = self.decide(contexts, coins).arms
        return KeyedValues(coins, np.where(asked == arms, values.keys, -1), asked, rewards)

    def shown(self, spec: PartitionSpec, decisions: Arms) -> str:
        """Return the name of the first person's arm."""
        return spec.experiment.arms[int(decisions.arms[0])]

    def read(self, spec: PartitionSpec, reward: Any) -> tuple[NDArray[np.float64], bool]:
        """Read one person's reward, scaled to [0, 1], and whether it had to be clipped."""
        value, clipped = scaled_reward(reward, spec.reward)
        return np.array([value]), clipped

    @property
    def undecided(self) -> NDArray[np.int64]:
        """Bins in which coins choose the arm, shape (undecided,)."""
        return self.bins

    def names(self) -> list[Hashable]:
        """Name the bins by depth and path."""
        return list(zip(self.depths.tolist(), self.paths.tolist(), strict=True))

    def count(self, played: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Count what people contribute, as `privateer.policy.Boxes.count`."""
        asked = played[self.bins]
        without = int(played.sum()) - int(asked.sum())
        return asked[self.cells[:, 0], self.cells[:, 1]][:, None] if self.fresh_coins else asked, without

    def edges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper corners of the bins, each (bins, d)."""
        return corners(self.depths, self.paths, self.axes, self.dimension)

    def describe(self, spec: PartitionSpec) -> dict[str, Any]:
        """Describe the policy: bins with corners, the values of features there, active arms and the share of each."""
        lower, upper = self.edges()
        arm_names = spec.experiment.arms
        rows = []
        for low, high, active, share in zip(lower, upper, self.active, self.shares, strict=True):
            arms = {arm_names[k]: round(float(share[k]), 4) for k in np.flatnonzero(active)}
            where = shown_box(spec.features, low, high)
            rows.append({"lower": low.tolist(), "upper": high.tolist(), "where": where, "arms": arms})
        return {"algorithm": "partition", "version": self.version, "bins": rows}


@dataclass(frozen=True)
class ByChoices:
    """Counts reports whose coins chose an arm under an earlier policy.

    Attributes
    ----------
    choices
        What the coins mean at the round's keys; its last group is of coins of which that is not known.
    groups
        How many groups the round has.
    """

    choices: EarlierChoices
    groups: int

    def tally(self, mechanism: Any, rows: bytes) -> KeyedTotal:
        """Parse reports and return their total."""
        aware: Any = msgspec.structs.replace(mechanism, layout=self.choices)
        total: KeyedTotal = aware.add(aware.empty(), aware.parse(rows))
        return replace(total, sums=total.sums[:, : self.groups], counts=total.counts[:, : self.groups])

    def simulate(self, mechanism: Any, contributions: KeyedValues, rng: np.random.Generator) -> KeyedSums:
        """Draw a release of people who decided so."""
        aware: Any = msgspec.structs.replace(mechanism, layout=self.choices)
        unknown = (self.choices.thresholds[:, -1] == 0)[contributions.keys] & (contributions.keys >= 0)
        groups = np.where(unknown, self.groups, contributions.groups)
        release: KeyedSums = aware.simulate(replace(contributions, groups=groups), rng)
        return replace(release, sums=release.sums[:, : self.groups], counts=release.counts[:, : self.groups])


def corners(
    depths: NDArray[np.int64], paths: NDArray[np.int64], axes: NDArray[np.int64], dimension: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper corners of bins, each (bins, d); ``axes`` as in `PartitionPolicy`, or as many as needed."""
    lower = np.zeros((len(depths), dimension))
    width = np.ones_like(lower)
    for level in range(int(np.max(depths, initial=0))):
        split = np.flatnonzero(depths > level)
        j = axes[level]
        width[split, j] /= 2
        half = (paths[split] >> (depths[split] - 1 - level)) & 1
        lower[split, j] += half * width[split, j]
    return lower, lower + width


ALGORITHM: Final = Algorithm(PartitionSpec, PartitionPolicy)
