"""The spec of ConSE, and of DP-ConSE where something is promised (paper 4), as printed; policies are the product's."""

from typing import Any, ClassVar, Final, Literal, Self

from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.algorithms.trial.sections import TrialSection
from privateer_core.errors import SpecError
from privateer_core.spec.sections import parse_section
from privateer_papers.published_trust import PublishedPrivacy

ROUNDS_MAX: Final = 2000
_THEIRS: Final = frozenset({"name", "alpha", "width", "rate"})
"""Keys that mean something to the paper; all others are the product's."""


class DpConseSection(TrialSection):
    """The ``[algorithm]``.

    Attributes
    ----------
    width
        Where c_e, the private part of the width, is taken from. ``algorithm``: with a factor of 2, as in Algorithm 2;
        ``appendix``: without, as in the proof.
    """

    name: Literal["paper-4-dp-conse"]  # type: ignore[assignment] # one of its own
    width: Literal["algorithm", "appendix"] = "algorithm"


class DpConseSpec(TrialSpec):
    """A trial by ConSE or DP-ConSE, in simulation alone."""

    floor_least: ClassVar[float] = 0.0

    privacy: PublishedPrivacy
    algorithm: DpConseSection

    @override
    def _check_growth(self) -> None:
        """Refuse what the paper does not have, too: one number in equal bins, its promise, and none of our rules."""
        super()._check_growth()
        people, table = self.experiment.horizon, self.experiment
        for name, field in DpConseSection.model_fields.items():
            if name not in _THEIRS and getattr(self.algorithm, name) != field.default:
                raise _refused(f"algorithm.{name}", "is not part of the paper's algorithm", "remove it")
        if self.segments.bins is None or len(self.segments.by) != 1:
            raise _refused("segments.bins", "must part one number in the paper's algorithm", "name it, and give bins")
        if self.privacy.trust.promises and self.privacy.delta < 1 / people:
            detail = "must be at least 1 / experiment.horizon, which is what the paper states"
            raise _refused("privacy.delta", detail, f"set it to {1 / people:.3g}")
        if people > ROUNDS_MAX * table.round_size:
            detail = f"makes more than {ROUNDS_MAX:,} rounds"
            raise _refused("experiment.round_size", detail, f"raise it to {-(-people // ROUNDS_MAX)}")

    @property
    @override
    def floor(self) -> float:
        return 0.0

    @property
    @override
    def looks(self) -> tuple[int, ...]:
        """Return the people after every round: rounds of one size, one of which ends with the first half of people."""
        people, size = self.experiment.horizon, self.experiment.round_size
        half = people // 2
        return (*range(size, half, size), half, *range(half + size, people, size), people)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return instances with many people, of whom the first half ends epochs, in few rounds."""
        promises: dict[str, dict[str, Any]] = {"none": {}, "central": {"epsilon": 1.0, "delta": 1e-4}}
        data = {
            "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 20_000, "round_size": 2_500},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "segments": {"by": ["x"], "bins": 4},
            "algorithm": {"name": "paper-4-dp-conse"},
        }
        return {
            model: parse_section(cls, data | {"privacy": {"model": model, **promise}})
            for model, promise in promises.items()
        }


def _refused(field: str, detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field=field, remedy=remedy)


ALGORITHM: Final = Algorithm(DpConseSpec, TrialPolicy)
