"""Changes that an operator may make to an experiment: a class for each.

From a class follow the route with its OpenAPI, the command with its options and help, the form of the dashboard with
its words, the line of the log, and where an experiment stands when the change makes sense. This module imports little,
since the command line reads it at its start.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, Protocol, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from privateer_server.store.records import PAUSED, STOPPED, Plan

if TYPE_CHECKING:
    from privateer_core.spec.spec import Spec

Verb: TypeAlias = Literal["pause", "resume", "extend", "stop", "retire-arm", "add-arm", "clone", "delete"]
_SECONDS_MAX: Final = 31_536_000.0
_UNCHANGED: Final = "Unchanged."
_LATER: Final = (
    "Without a number it waits for its people. A round that ends early without the people that its promise counts on "
    "is given up: what came in it is lost. 0 ends it at once."
)


class Words(NamedTuple):
    """The words of a form, which say what a change means before it is sent."""

    # title, done: the button, and what is true of the experiment afterwards
    title: str
    done: str
    # flight, learned, promise: what becomes of a device that has chosen and not reported, of what was learned, and of
    # the promise to a person
    flight: str
    learned: str
    promise: str = _UNCHANGED
    is_final: bool = False  # whether the change cannot be undone


class Option(NamedTuple):
    """The name of a field on the command line, where it is another one."""

    name: str


def _seconds(default: float | None, meaning: str = _LATER) -> Any:
    return Field(default=default, title="Seconds that the open round still has", description=meaning)


Seconds = Annotated[float | None, Field(ge=0, le=_SECONDS_MAX, allow_inf_nan=False), Option("within")]
"""How long the open round has at most; None: it waits for its people."""
Horizon = Annotated[int, Field(ge=1)]
ArmName = Annotated[str, Field(min_length=1, max_length=64)]


class Change(BaseModel):
    """A change as it is asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    verb: ClassVar[Verb]  # its name in addresses, on the command line and in the log
    words: ClassVar[Words]  # what its form says
    when: ClassVar[frozenset[str]] = frozenset()  # the statuses of an experiment that accepts it; empty: all

    @classmethod
    def form(cls) -> dict[str, Any]:
        """Return what the dashboard makes a form of: the words, and a row for each field."""
        return {"id": cls.verb, **cls.words._asdict(), "fields": [_row(name, cls) for name in cls.model_fields]}


def _row(name: str, change: type[Change]) -> dict[str, Any]:
    field = change.model_fields[name]
    kind = "text" if field.annotation is str else "number"
    return {
        "name": name,
        "label": field.title,
        "hint": field.description or "",
        "type": "arm" if issubclass(change, RetireArm) and name == "arm" else kind,
        "optional": not field.is_required(),
        "whole": field.annotation in (int, int | None),
        "least": limit_of(field, "ge"),
        "most": limit_of(field, "le"),
    }


def limit_of(field: FieldInfo, kind: Literal["ge", "le"]) -> float | None:
    """Return the least (``ge``) or the greatest (``le``) number that a field takes; None if there is none."""
    return next((getattr(one, kind) for one in field.metadata if hasattr(one, kind)), None)


class Planner(Protocol):
    """Makes plans for one experiment, as it stands; each method returns None where nothing changes."""

    def hold(self, hold: str, seconds: float | None) -> Plan | None:
        """Ask nobody until `resume`, or for good."""
        ...

    def resume(self) -> Plan | None:
        """Ask people again."""
        ...

    def respecify(self, change: "SpecChange") -> Plan | None:
        """Publish another spec."""
        ...


class PlannedChange(Change):
    """A change of an experiment's plan, which its next publication carries out."""

    @property
    def ends_in(self) -> float | None:
        """Seconds after which the open round ends; None: it waits for its people."""
        return getattr(self, "seconds", None)

    @property
    def detail(self) -> str:
        """Return what the log says beside the verb."""
        return ""

    @abstractmethod
    def apply(self, planner: "Planner") -> Plan | None:
        """Return what the change makes of an experiment's plan; None if it changes nothing."""


class Pause(PlannedChange):
    """Ask nobody until it is resumed. People who have chosen may still report to the open round."""

    verb = "pause"
    when = frozenset({"open", "draining"})
    words = Words(
        title="Pause",
        done="is paused",
        flight="A device that has chosen reports as ever, and the open round waits for it. Who comes now gets an arm "
        "and is not asked: nothing is paid.",
        learned="Everything is kept. Once the round is full it is learned from, and everybody gets the best policy "
        "until you resume.",
    )
    seconds: Seconds = _seconds(None)

    def apply(self, planner: "Planner") -> Plan | None:
        """Hold the experiment."""
        return planner.hold(PAUSED, self.seconds)


class Resume(PlannedChange):
    """Ask people again after a pause."""

    verb = "resume"
    when = frozenset({"paused"})
    words = Words(
        title="Resume",
        done="asks people again",
        flight="A device that has chosen reports as ever if the round is still open.",
        learned="Everything is kept; the next round starts from what is known.",
    )

    def apply(self, planner: "Planner") -> Plan | None:
        """Let go of the experiment."""
        return planner.resume()


class SpecChange(PlannedChange):
    """A change that makes a new public spec, which is checked as a whole."""

    # revives, needs_people: whether it lets an experiment that has finished go on, or makes sense only where people are
    # asked
    revives: ClassVar[bool] = False
    needs_people: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def example(cls, spec: "Spec") -> Self:
        """Return a change of this kind that suits a spec, to ask an algorithm whether it takes such changes."""

    @abstractmethod
    def respec(self, spec: "Spec") -> "Spec":
        """Return the spec that it makes; the same if it changes nothing."""

    def apply(self, planner: "Planner") -> Plan | None:
        """Plan the new spec."""
        return planner.respecify(self)


class Extend(SpecChange):
    """Let an experiment last longer, also one that is finished."""

    verb = "extend"
    when = frozenset({"open", "paused", "draining", "finished"})
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
    seconds: Seconds = _seconds(None)

    @property
    def detail(self) -> str:
        """The horizon."""
        return f"horizon {self.horizon}"

    @classmethod
    def example(cls, spec: "Spec") -> Self:
        """Double the horizon."""
        return cls(horizon=2 * spec.experiment.horizon)

    def respec(self, spec: "Spec") -> "Spec":
        """Set the horizon."""
        from privateer_server.experiments.spec_changes import extended

        return extended(spec, self.horizon)


class Stop(PlannedChange):
    """End an experiment: it asks nobody any more, and its best policy stays published."""

    verb = "stop"
    when = frozenset({"open", "paused", "draining"})
    words = Words(
        title="Stop",
        done="is stopped",
        flight="A device that has chosen is late: its report is paid for and not counted, unless you give it time.",
        learned="Everything is kept; what came in the open round is learned from if that may be. The best policy stays "
        "published. It cannot be resumed.",
        promise="Unchanged: no later round asks anybody.",
        is_final=True,
    )
    seconds: Seconds = _seconds(
        0.0, "Without a number it ends at once. With one it waits so long for those who chose before."
    )

    def apply(self, planner: "Planner") -> Plan | None:
        """Hold the experiment for good."""
        return planner.hold(STOPPED, self.seconds)


class RetireArm(SpecChange):
    """Give an arm to nobody from the next version on. What is known of it stays, and so does its name."""

    verb = "retire-arm"
    when = frozenset({"open", "paused", "draining"})
    words = Words(
        title="Retire an arm",
        done="gives that arm to nobody from the next version on",
        flight="A device that has chosen reports as ever, also about this arm.",
        learned="The arm's evidence is kept; its share is 0 from the next policy on, and devices refuse a policy that "
        "says otherwise. An arm that is retired does not come back.",
        is_final=True,
    )
    arm: ArmName = Field(title="Arm")
    seconds: Seconds = _seconds(None, f"{_LATER} So an arm is taken back that does harm.")

    @property
    def detail(self) -> str:
        """The arm."""
        return self.arm

    @classmethod
    def example(cls, spec: "Spec") -> Self:
        """Retire the first arm that is left; where arms have no names there is none."""
        retired = getattr(spec.experiment, "retired", ())
        left = [arm for arm in getattr(spec.experiment, "arms", ()) if arm not in retired]
        return cls(arm=left[0] if left else "an arm")

    def respec(self, spec: "Spec") -> "Spec":
        """Retire the arm."""
        from privateer_server.experiments.spec_changes import without_arm

        return without_arm(spec, self.arm)


class AddArm(SpecChange):
    """Try one more arm from the next version on."""

    verb = "add-arm"
    when = frozenset({"open", "paused"})
    words = Words(
        title="Add an arm",
        done="tries that arm from the next version on",
        flight="A device that has chosen reports as ever, and says nothing about the new arm.",
        learned="Everything is kept; the new arm begins without evidence.",
    )
    needs_people = True
    arm: ArmName = Field(title="Name of the new arm")
    seconds: Seconds = _seconds(None)

    @property
    def detail(self) -> str:
        """The arm."""
        return self.arm

    @classmethod
    def example(cls, spec: "Spec") -> Self:  # noqa: ARG003
        """Add an arm that nobody has thought of."""
        return cls(arm="another arm")

    def respec(self, spec: "Spec") -> "Spec":
        """Add the arm."""
        from privateer_server.experiments.spec_changes import with_arm

        return with_arm(spec, self.arm)


class Clone(Change):
    """Create an experiment that begins with what this one has learned; the same again changes nothing."""

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
