"""What an experiment has found, as a document that others keep and that a new experiment can begin with."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, Literal

import msgspec
import numpy as np

from privateer.algorithms import parse_spec
from privateer.codec import decode, encode
from privateer.errors import PrivateerError, SpecError
from privateer.record import Record
from privateer.result import Result, decode_result
from privateer.spec import Spec
from privateer.wire.publication import decode_publication
from privateer_server.algorithms import learner_for
from privateer_server.api import promises
from privateer_server.experiment import Experiment, Status
from privateer_server.experiments import Start
from privateer_server.rounds import read_decider
from privateer_server.schedule import Schedule
from privateer_server.store import RoundRecord, ShufflerKey

FORMAT: Final = "privateer/export/1"
_FIELD: Final = "warm_start"
_REMEDY: Final = "give a file that privateer export wrote"


class Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Policy, result, record and learner state of an experiment: functions of its releases, so they cost nothing more.

    Attributes
    ----------
    experiment, version, status
        Where the experiment stood.
    spec, policy
        As `GET /experiments/NAME` and ``/policy`` have them.
    result
        As ``/result`` has it; None if the algorithm publishes none.
    record
        As ``/privacy`` has it, with the certificates.
    state, publication
        The learner's state and the whole publication, in base64.
    """

    format: Literal["privateer/export/1"]
    experiment: str
    version: int
    status: Status
    spec: dict[str, Any]
    policy: dict[str, Any]
    result: Result | None
    record: Record
    state: str
    publication: str


def exported(experiment: Experiment, rounds: list[RoundRecord], closers: Mapping[int, ShufflerKey]) -> Export:
    """Return the document of an experiment with these rounds, and whose batches they took."""
    current, spec = experiment.current, experiment.spec
    published = decode_publication(current.publication)
    return Export(
        format=FORMAT,
        experiment=experiment.name,
        version=current.round.version,
        status=experiment.status,
        spec=spec.model_dump(mode="json", exclude_none=True),
        policy=read_decider(spec, published).describe(spec),
        result=decode_result(published.result) if published.result else None,
        record=promises.privacy(spec, rounds, closers),
        state=base64.b64encode(encode(current.step.state)).decode(),
        publication=base64.b64encode(current.publication).decode(),
    )


def start_with(document: dict[str, Any]) -> Start:
    """Return how an experiment begins with what an exported one has learned.

    Raises
    ------
    SpecError
        If the document is not an export.
    """
    try:
        found = msgspec.convert(document, Export)
        state = base64.b64decode(found.state, validate=True)
    except (msgspec.ValidationError, RecursionError, OverflowError, binascii.Error, ValueError) as error:
        raise SpecError(f"is not an export: {error}", field=_FIELD, remedy=_REMEDY) from None
    before = parse_spec(found.spec)
    detail = f"warm start from {before.name} at version {found.version}"
    return Start(lambda schedule: _begun(schedule, before, state), "create", detail)


def _begun(schedule: Schedule, before: Spec, encoded: bytes) -> Any:
    """Read a state that somebody wrote, and see that a policy follows from it."""
    if before.algorithm.name != schedule.spec.algorithm.name:
        detail = "differs from that of the experiment to begin with"
        raise SpecError(detail, field="algorithm.name", remedy="make it the same, or begin without")
    try:
        state = decode(encoded, learner_for(before).state_type)
        if any(_is_nan(getattr(state, one.name)) for one in fields(state)):
            raise ValueError("not a number")
        begun = schedule.learner.begun(state, before)
        schedule.open(0, 1, begun).policy.check(schedule.spec)
    except SpecError:
        raise
    except (PrivateerError, ValueError, TypeError, IndexError, ArithmeticError, AttributeError, AssertionError):
        raise SpecError("its state does not fit its spec", field=_FIELD, remedy=_REMEDY) from None
    return begun


def _is_nan(value: Any) -> bool:
    return isinstance(value, np.ndarray | float) and bool(np.isnan(value).any())
