"""The privacy record of an experiment: every round's terms, beside the certificate that they make.

A certificate shows that its claims follow from its events. A record shows more: that the events are those of the rounds
it lists, since its certificate is made anew from these and must come out the same.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np

from privateer.certificate import Certificate, certify
from privateer.coins import Layout
from privateer.errors import SpecError
from privateer.mechanisms.base import Mechanism
from privateer.spec import Privacy, Spec
from privateer.terms import Terms

FORMAT: Final = "privateer/record/2"
JUMP: Final = 1_000_000
"""Versions up to the next multiple of it may have been published, if a database was replaced by an earlier copy."""
PROMISE: Final = frozenset({"model", "epsilon", "delta"})
"""Keys of the spec's privacy section that stand beside it in a record."""
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}\Z")]
_PUBLIC: Final = {"layout": Layout(0, np.zeros((0, 0), np.uint32)), "seed": 0}
"""Parameters of mechanisms that cost no privacy, which records leave out, and what stands in for them."""


class Planned(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The terms of one round, without what its whole cohort is promised.

    Attributes
    ----------
    batch, honest
        The number of people asked, and of those whom the promise counts on.
    mechanism
        Its tag as ``type``, and its parameters but for the layout and the seed, which cost no privacy.
    """

    batch: int
    honest: int
    mechanism: dict[str, Any]


class Row(Planned, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A round that was opened.

    Attributes
    ----------
    version
        The policy's version.
    received, released
        The number of people whose reports opened, and whether anything was released about them.
    """

    version: Annotated[int, msgspec.Meta(gt=0)]
    received: int
    released: bool


class Promise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the people of one cohort are promised.

    Attributes
    ----------
    epsilon, delta
        The promise; an epsilon of None promises nothing.
    rounds
        The cohort's rounds, in the order of their versions.
    planned
        The terms of the first round as calibrated ahead of it, as long as there are no rounds.
    certificate
        What these rounds claim, or the one that is planned.
    """

    epsilon: float | None
    delta: float
    rounds: tuple[Row, ...]
    planned: Planned | None
    certificate: Certificate


class Source(Promise, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The promise to a source's people."""

    name: Name


class Record(Promise, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole record; its own promise is that to the experiment's own people.

    Attributes
    ----------
    privacy
        The spec's section of that name, without model, epsilon and delta.
    least_share
        The least share of a round's people with whom it may close.
    """

    format: Literal["privateer/record/2"]
    experiment: Name
    algorithm: str
    model: str
    reports_per_person: Literal[1]
    privacy: dict[str, Any]
    least_share: Annotated[float, msgspec.Meta(gt=0, le=1)]
    sources: tuple[Source, ...] = ()


def planned_of(terms: Terms) -> Planned:
    """Return the terms as a record has them."""
    mechanism = terms.mechanism
    names = [name for name in mechanism.__struct_fields__ if name not in _PUBLIC]
    parameters = {name: msgspec.to_builtins(getattr(mechanism, name)) for name in names}
    tag = mechanism.__struct_config__.tag
    return Planned(batch=terms.batch, honest=terms.honest, mechanism={"type": tag, **parameters})


def terms_of(row: Planned, privacy: Privacy) -> Terms:
    """Return the terms that a row has under a promise; their mechanism works on no keys.

    Raises
    ------
    SpecError
        If the trust model has no such mechanism; names the field within the row.
    """
    mechanism = _mechanism(row.mechanism, privacy)
    promise = (privacy.model, privacy.bound, privacy.delta, privacy.calibration)
    return Terms(*promise, row.batch, row.honest, mechanism)


def _mechanism(parameters: Mapping[str, Any], privacy: Privacy) -> Mechanism:
    kinds = {kind.__struct_config__.tag: kind for some in privacy.trust.mechanisms.values() for kind in some}
    kind = kinds.get(str(parameters.get("type")))
    if kind is None:
        raise SpecError("the trust model does not have this mechanism", field="mechanism.type")
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    if wrong := (set(fields) - set(_PUBLIC) | {"type"}) ^ set(parameters):
        raise SpecError("missing, or unknown", field=f"mechanism.{min(wrong)}")
    try:
        made = {name: msgspec.convert(parameters[name], fields[name]) for name in fields if name not in _PUBLIC}
        return kind(**made, **{name: value for name, value in _PUBLIC.items() if name in fields})
    except (msgspec.ValidationError, OverflowError) as error:
        raise SpecError(f"there is no such mechanism: {error}", field="mechanism") from None
    except SpecError as error:
        raise SpecError(error.detail, field=f"mechanism.{error.field}") from None


def make_record(spec: Spec, rounds: Mapping[str, Sequence[Row]], planned: Mapping[str, Planned]) -> Record:
    """Return the record of an experiment.

    Parameters
    ----------
    rounds
        The rounds of each cohort, in the order of their versions.
    planned
        The first terms of each cohort that is asked but has no rounds yet.
    """
    promises = {
        cohort: _promise(spec, cohort, tuple(rounds.get(cohort, ())), planned.get(cohort))
        for cohort in spec.cohorts
        if rounds.get(cohort) or cohort in planned
    }
    return Record(
        format=FORMAT,
        experiment=spec.name,
        algorithm=spec.algorithm.name,
        model=spec.privacy.model,
        reports_per_person=1,
        privacy=spec.privacy.model_dump(mode="json", exclude=set(PROMISE)),
        least_share=spec.least_share,
        sources=tuple(Source(name=cohort, **promise) for cohort, promise in promises.items() if cohort),
        **promises[""],
    )


def _promise(spec: Spec, cohort: str, rounds: tuple[Row, ...], planned: Planned | None) -> dict[str, Any]:
    privacy = spec.privacy_of(cohort)
    rows = rounds or (planned,) if planned else rounds
    terms = [terms_of(row, privacy) for row in rows]
    return {
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "rounds": rounds,
        "planned": None if rounds else planned,
        "certificate": certify(spec.name, privacy, terms, planned=not rounds),
    }
