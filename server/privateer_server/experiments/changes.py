"""Changes that an operator can make to an experiment: a class for each.

A class defines the route with its OpenAPI, the command with its options and help, the form of the dashboard with its
texts, the line of the log, and the statuses that accept the change. This module imports little, since the command line
reads it at its start.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, Protocol, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from privateer_core.experiment_status import Status, statuses_before
from privateer_server.experiments.spec_changes import add_arm, extend_horizon, retire_arm
from privateer_server.store.records import PAUSED, STOPPED, Plan

if TYPE_CHECKING:
    from privateer_core.spec.spec import Spec

Verb: TypeAlias = Literal["pause", "resume", "extend", "stop", "retire-arm", "add-arm", "clone", "delete"]
_MAX_SECONDS: Final = 31_536_000.0
_UNCHANGED: Final = "Unchanged."
_SECONDS_MEANING: Final = (
    "Without a number it waits for its people. A round that ends early without the people that its promise counts on "
    "is given up: what came in it is lost. 0 ends it at once."
)


class Words(NamedTuple):
    """The texts of a form, which explain a change before it is sent."""

    # title, done: the button, and the result for the experiment
    title: str
    done: str
    # flight, learned, promise: the effect on devices that have chosen and not reported, on the learned state, and on
    # the promise to participants
    flight: str
    learned: str
    promise: str = _UNCHANGED
    is_final: bool = False  # whether the change cannot be undone


class Option(NamedTuple):
    """The name of a field on the command line, if it differs."""

    name: str


def _seconds_field(default: float | None, meaning: str = _SECONDS_MEANING) -> Any:
    return Field(default=default, title="Seconds that the open round still has", description=meaning)


Seconds = Annotated[float | None, Field(ge=0, le=_MAX_SECONDS, allow_inf_nan=False), Option("within")]
"""The maximum remaining time of the open round; None: it waits for its participants."""
Horizon = Annotated[int, Field(ge=1)]
ArmName = Annotated[str, Field(min_length=1, max_length=64)]


class Change(BaseModel):
    """A requested change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    verb: ClassVar[Verb]  # its name in addresses, on the command line and in the log
    words: ClassVar[Words]  # the texts of its form

    @classmethod
    def statuses(cls) -> frozenset[Status]:
        """Return the statuses in which an experiment accepts the change; empty: all."""
        return statuses_before(cls.verb)

    @classmethod
    def build_form(cls) -> dict[str, Any]:
        """Return the description of the dashboard's form: its texts, and a row for each field."""
        fields = [_build_field_row(name, cls) for name in cls.model_fields]
        return {"id": cls.verb, **cls.words._asdict(), "fields": fields}


def _build_field_row(name: str, change: type[Change]) -> dict[str, Any]:
    field = change.model_fields[name]
    kind = "text" if field.annotation is str else "number"
    return {
        "name": name,
        "label": field.title,
        "hint": field.description or "",
        "type": "arm" if issubclass(change, RetireArm) and name == "arm" else kind,
        "optional": not field.is_required(),
        "whole": field.annotation in (int, int | None),
        "least": find_limit(field, "ge"),
        "most": find_limit(field, "le"),
    }


def find_limit(field: FieldInfo, kind: Literal["ge", "le"]) -> float | None:
    """Return the minimum (``ge``) or maximum (``le``) of a field; None without a limit."""
    return next((getattr(constraint, kind) for constraint in field.metadata if hasattr(constraint, kind)), None)


class Planner(Protocol):
    """A maker of plans for an experiment in its current state; each method returns None if nothing changes."""

    def plan_hold(self, hold: str, round_ends_in_seconds: float | None) -> Plan | None:
        """Plan that no participants are invited until `plan_resume`, or for good."""

    def plan_resume(self) -> Plan | None:
        """Plan that participants are invited again."""

    def plan_new_spec(self, change: "SpecChange") -> Plan | None:
        """Plan the publication of another spec."""


class PlannedChange(Change):
    """A change of an experiment's plan, which its next publication carries out."""

    @property
    def seconds_left(self) -> float | None:
        """The seconds after which the open round ends; None: it waits for its participants."""
        return getattr(self, "seconds", None)

    @property
    def detail(self) -> str:
        """The text of the log line beside the verb."""
        return ""

    @abstractmethod
    def apply(self, planner: Planner) -> Plan | None:
        """Return the changed plan of an experiment; None if the change has no effect."""


class Pause(PlannedChange):
    """Ask nobody until it is resumed. People who have chosen may still report to the open round."""

    verb = "pause"
    words = Words(
        title="Pause",
        done="is paused",
        flight="A device that has chosen reports as ever, and the open round waits for it. Who comes now gets an arm "
        "and is not asked: nothing is paid.",
        learned="Everything is kept. Once the round is full it is learned from, and everybody gets the best policy "
        "until you resume.",
    )
    seconds: Seconds = _seconds_field(None)

    def apply(self, planner: Planner) -> Plan | None:
        """Hold the experiment."""
        return planner.plan_hold(PAUSED, self.seconds)


class Resume(PlannedChange):
    """Ask people again after a pause."""

    verb = "resume"
    words = Words(
        title="Resume",
        done="asks people again",
        flight="A device that has chosen reports as ever if the round is still open.",
        learned="Everything is kept; the next round starts from what is known.",
    )

    def apply(self, planner: Planner) -> Plan | None:
        """Resume the experiment."""
        return planner.plan_resume()


class SpecChange(PlannedChange):
    """A change that makes a new public spec, which is checked as a whole."""

    # revives, needs_participants: whether it continues a finished experiment, or is possible only while participants
    # are invited
    revives: ClassVar[bool] = False
    needs_participants: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def example(cls, spec: "Spec") -> Self:
        """Return an example of the change for a spec, to test whether an algorithm accepts such changes."""

    @abstractmethod
    def apply_to_spec(self, spec: "Spec") -> "Spec":
        """Return the changed spec; the same spec if the change has no effect."""

    def apply(self, planner: Planner) -> Plan | None:
        """Plan the new spec."""
        return planner.plan_new_spec(self)


class Extend(SpecChange):
    """Let an experiment last longer, also one that is finished."""

    verb = "extend"
    words = Words(
        title="Extend",
        done="asks more people",
        flight="A device that has chosen reports as ever.",
        learned="Everything is kept; later rounds are as large as they would be at that many people.",
        promise="Unchanged. Later rounds have terms of their own for the same epsilon and delta.",
    )
    revives = True
    horizon: Horizon = Field(
        title="New horizon", description="All people before included. It holds from the next version on."
    )
    seconds: Seconds = _seconds_field(None)

    @property
    def detail(self) -> str:
        """The horizon."""
        return f"horizon {self.horizon}"

    @classmethod
    def example(cls, spec: "Spec") -> Self:
        """Double the horizon."""
        return cls(horizon=2 * spec.experiment.horizon)

    def apply_to_spec(self, spec: "Spec") -> "Spec":
        """Set the horizon."""
        return extend_horizon(spec, self.horizon)


class Stop(PlannedChange):
    """End an experiment: it asks nobody any more, and its best policy stays published."""

    verb = "stop"
    words = Words(
        title="Stop",
        done="is stopped",
        flight="A device that has chosen is late: its report is paid for and not counted, unless you give it time.",
        learned="Everything is kept; what came in the open round is learned from if that may be. The best policy stays "
        "published. It cannot be resumed.",
        promise="Unchanged: no later round asks anybody.",
        is_final=True,
    )
    seconds: Seconds = _seconds_field(
        0.0, "Without a number it ends at once. With one it waits so long for those who chose before."
    )

    def apply(self, planner: Planner) -> Plan | None:
        """Hold the experiment for good."""
        return planner.plan_hold(STOPPED, self.seconds)


class RetireArm(SpecChange):
    """Give an arm to nobody from the next version on. What is known of it stays, and so does its name."""

    verb = "retire-arm"
    words = Words(
        title="Retire an arm",
        done="gives that arm to nobody from the next version on",
        flight="A device that has chosen reports as ever, also about this arm.",
        learned="The arm's evidence is kept; its share is 0 from the next policy on, and devices refuse a policy that "
        "says otherwise. An arm that is retired does not come back.",
        is_final=True,
    )
    arm: ArmName = Field(title="Arm")
    seconds: Seconds = _seconds_field(None, f"{_SECONDS_MEANING} So an arm is taken back that does harm.")

    @property
    def detail(self) -> str:
        """The arm."""
        return self.arm

    @classmethod
    def example(cls, spec: "Spec") -> Self:
        """Retire the first remaining arm; arms without names get a placeholder."""
        retired = getattr(spec.experiment, "retired_arms", ())
        remaining_arms = [arm for arm in getattr(spec.experiment, "arms", ()) if arm not in retired]
        return cls(arm=remaining_arms[0] if remaining_arms else "an arm")

    def apply_to_spec(self, spec: "Spec") -> "Spec":
        """Retire the arm."""
        return retire_arm(spec, self.arm)


class AddArm(SpecChange):
    """Try one more arm from the next version on."""

    verb = "add-arm"
    words = Words(
        title="Add an arm",
        done="tries that arm from the next version on",
        flight="A device that has chosen reports as ever, and says nothing about the new arm.",
        learned="Everything is kept; the new arm begins without evidence.",
    )
    needs_participants = True
    arm: ArmName = Field(title="Name of the new arm")
    seconds: Seconds = _seconds_field(None)

    @property
    def detail(self) -> str:
        """The arm."""
        return self.arm

    @classmethod
    def example(cls, spec: "Spec") -> Self:  # noqa: ARG003
        """Add an arm of a new name."""
        return cls(arm="another arm")

    def apply_to_spec(self, spec: "Spec") -> "Spec":
        """Add the arm."""
        return add_arm(spec, self.arm)


class Clone(Change):
    """Create an experiment that begins with the learner's state of this one, once."""

    verb = "clone"
    words = Words(
        title="Clone",
        done="is created",
        flight="A device that has chosen notices nothing.",
        learned="The new experiment begins with what this one had learned before the open round, and counts people "
        "from 0.",
        promise="Unchanged. The new one is another experiment: whoever reports there pays there, too.",
    )
    name: Annotated[str, Option("new")] = Field(
        title="Name of the new experiment", description="Lower-case letters, digits and dashes."
    )
    horizon: Annotated[int | None, Field(ge=1)] = Field(
        default=None, title="Its horizon", description="Without a number it is the same."
    )


class Delete(Change):
    """Erase an experiment for good: its keys, rounds and policies. Nobody can use its name again."""

    verb = "delete"
    words = Words(
        title="Delete",
        done="is deleted",
        flight="The report of a device that has chosen is refused as deleted, and nobody can join any more.",
        learned="Nothing is kept: keys, rounds and policies are erased, and the name is never used again.",
        promise="Unchanged: who has reported has paid, and nothing more is released.",
        is_final=True,
    )


class WarmStart(BaseModel):
    """Create an experiment of this name from a spec and an export; the same again changes nothing.

    It is no change of an experiment that there is, so no experiment accepts it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    spec: dict[str, Any]
    start: dict[str, Any] = Field(description="The export of another experiment.")


PLANNED: Final[tuple[type[PlannedChange], ...]] = (Pause, Resume, Extend, Stop, RetireArm, AddArm)
CHANGES: Final[tuple[type[Change], ...]] = (*PLANNED, Clone, Delete)
