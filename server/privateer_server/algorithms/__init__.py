"""Learners, found by the names of their algorithms: pure functions from state and release to state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from privateer_core.errors import SpecError
from privateer_core.plugins import Plugins
from privateer_core.policy import Policy
from privateer_core.result import Result, Table
from privateer_core.spec import Spec


@dataclass(frozen=True)
class Step:
    """What a round is made of.

    Attributes
    ----------
    state, policy
        The learner's state, and the policy that lives for the round.
    batch
        People whose reports close it; 0: the experiment is over.
    seen
        People of the same cohort whose reports opened in earlier rounds.
    least
        Fewest people with whom it may close after ``seconds``.
    seconds
        Seconds from its opening to its deadline; 0: it has no deadline.
    """

    state: Any
    policy: Policy
    batch: int
    seen: int = 0
    least: int = 0
    seconds: int = 0


class Bulk(NamedTuple):
    """What a round carries: its people, the messages of each, and the bytes of one before it is sealed."""

    people: int
    messages: int
    size: int


class Foreseeing(Protocol):
    """A learner that knows what it can find before anybody is asked."""

    def foreseen(self, waiting: float = 0.0) -> tuple[Table, ...]:
        """Return what can be found, where so many people choose between somebody's choice and the report on it."""
        ...


class Learner(Protocol):
    """What turns releases into policies. States are frozen dataclasses that travel by `privateer_core.codec`."""

    @property
    def state_type(self) -> type[Any]:
        """The class of its states."""
        ...

    @property
    def repeats(self) -> bool:
        """Whether a shuffled round of which too few reports opened asks other people; else it takes another batch."""
        ...

    @property
    def publishes_result(self) -> bool:
        """Whether it ever publishes a result; else its policies are all that it finds."""
        ...

    @property
    def growth(self) -> tuple[str, str]:
        """Key of the spec that makes rounds large, and words for what else does."""
        ...

    def start(self, seed: int) -> Any:
        """Return the state before any report; ``seed``, 63 bits, is public."""
        ...

    def next(self, state: Any, version: int, seed: int) -> Step:
        """Return the round that a state leads to, with a public seed of its own.

        Raises
        ------
        SpecError
            If no terms keep the promise.
        """
        ...

    def last(self, state: Any, version: int, seed: int) -> Step:
        """Return the step that asks nobody and has the best policy so far: of a pause, or for good."""
        ...

    def changed(self, state: Any, before: Any) -> Any:
        """Return the state under this learner's spec, when the experiment's was ``before`` until now.

        The horizon may have grown, arms may have been added at the end or retired; nothing else differs.

        Raises
        ------
        SpecError
            If the algorithm cannot do that while an experiment runs; names the field and says what to do instead.
        """
        ...

    def begun(self, state: Any, before: Any) -> Any:
        """Return the state of a new experiment that begins with what another one, of the spec ``before``, has learned.

        Raises
        ------
        SpecError
            If the other one says nothing about this learner's spec; names the field that differs.
        """
        ...

    def learn(self, state: Any, policy: Any, release: Any) -> Any:
        """Return the state after a round's release."""
        ...

    def miss(self, state: Any, policy: Any, *, again: bool) -> Any:
        """Return the state after a round of which nothing is released; ``again``: other people are asked the same."""
        ...

    def failed(self, state: Any) -> bool:
        """Whether a round came to no end, so that the experiment is over."""
        ...

    def result(self, state: Any) -> Result | None:
        """Return what the experiment has found so far; None if the algorithm publishes a policy alone."""
        ...

    def describe(self, state: Any) -> dict[str, Any]:
        """Describe a state as JSON, for people."""
        ...

    def bulk(self, first: Step) -> list[Bulk]:
        """Return what the largest rounds carry at most."""
        ...

    def figures(self, state: Any) -> dict[str, float]:
        """Return figures of a state that simulations average."""
        ...


def must_agree(before: Spec, after: Spec, fields: tuple[str, ...]) -> None:
    """Refuse to begin an experiment with what one of another spec has learned, if a field of their specs differs.

    Parameters
    ----------
    before, after
        The two specs.
    fields
        Dotted names.

    Raises
    ------
    SpecError
        Naming the first field that differs.
    """
    for field in fields:
        if _at(before, field) != _at(after, field):
            detail = "differs from that of the experiment to begin with"
            raise SpecError(detail, field=field, remedy="make it the same, or begin without it")


def _at(spec: Spec, field: str) -> Any:
    value: Any = spec
    for name in field.split("."):
        value = getattr(value, name, None)
    # Mappings of features are in order.
    return list(value.items()) if isinstance(value, dict) else value


LEARNERS: Final = Plugins[Callable[[Any], Learner]](
    "privateer.learners", "distribution that brings its learner", "algorithm.name"
)
"""What makes the learner of a spec, by the algorithm's name."""


def learner_for(spec: Spec) -> Learner:
    """Return the learner of the algorithm that a spec names; raises what `Plugins` does."""
    return LEARNERS[spec.algorithm.name](spec)
