"""The privacy record of an experiment: every round's terms, beside the certificate that they make.

A certificate shows that its claims follow from its events. A record shows more: that the events are those of the rounds
it lists, since its certificate is made anew from these and must come out the same.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, cast

import msgspec
import numpy as np

from privateer_core.errors import SpecError
from privateer_core.mechanisms import AnyMechanism, Mechanism
from privateer_core.prepared_types import prepared
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.privacy.certificate import Certificate, certify
from privateer_core.privacy.terms import Terms
from privateer_core.sampling.response import SYMBOLS_MAX
from privateer_core.spec.experiment import REPORTS_MAX
from privateer_core.spec.privacy import Privacy, idle_default
from privateer_core.spec.spec import Spec

FORMAT: Final = "privateer/record/2"
PROMISE: Final = frozenset({"model", "epsilon", "delta"})
"""Keys of the spec's privacy section that stand beside it in a record."""
OF_BATCHES: Final = frozenset({"local_epsilon_max"})
"""Keys of the same section that limit what a batch hides: where there are none, a record has their defaults."""
ORGANISATION_MAX: Final = 255
"""Characters of an organisation's name, which is that of a file."""
KeyId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
Organisation = Annotated[str, msgspec.Meta(max_length=ORGANISATION_MAX)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}\Z")]
_LEFT_OUT: Final = frozenset({"layout", "seed", "least"})
"""Parameters of mechanisms that a row leaves out: the first two cost no privacy, the last repeats the honest people."""
_SHARES: Final = "shares"
"""Parts of 65,536 of the coins in each group, in the rows of mechanisms whose promise depends on them."""
_KEYS: Final = "keys"
"""How many keys the layout has, in the rows of mechanisms whose promise depends on it."""


class PlannedTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The terms of one round, without what its whole cohort is promised."""

    # batch, honest: the number of people asked, and of those whom the promise counts on
    batch: int
    honest: int
    # its tag as ``type``, and its parameters without layout and seed, which cost no privacy; with the number of keys
    # where that is how many symbols there are, and with the shares of groups where each is a batch
    mechanism: dict[str, Any]


class Row(PlannedTerms, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A round that was opened."""

    version: Annotated[int, msgspec.Meta(gt=0)]  # the policy's version
    # received, released: the number of people whose reports opened, and whether anything was released about them
    received: int
    released: bool
    # shuffler, organisation: where reports are shuffled: id of the key that signed the last batch of the round, and
    # whose key that was
    shuffler: KeyId | None = None
    organisation: Organisation | None = None


class CohortPromise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The promise to the people of one cohort."""

    # epsilon, delta: the promise; an epsilon of None promises nothing
    epsilon: float | None
    delta: float
    rounds: tuple[Row, ...]  # the cohort's rounds, in the order of their versions
    # the terms of the first round as calibrated ahead of it, as long as there are no rounds
    planned: PlannedTerms | None
    certificate: Certificate  # what these rounds claim, or the one that is planned


class SourcePromise(CohortPromise, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The promise to a source's people."""

    name: Name


class Record(CohortPromise, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole record; its own promise is that to the experiment's own people."""

    format: Literal["privateer/record/2"]
    experiment: Name
    algorithm: str
    model: str
    # reports that a device makes in all, each in a round of its own: they share the promise
    reports_per_person: Annotated[int, msgspec.Meta(ge=1, le=REPORTS_MAX)]
    privacy: dict[str, Any]  # the spec's section of that name, without model, epsilon and delta
    # the least share of a round's people with whom it may close
    least_share: Annotated[float, msgspec.Meta(gt=0, le=1)]
    sources: tuple[SourcePromise, ...] = ()
    # versions that asked nobody, such as those of a pause: they have no rounds
    silent: tuple[Annotated[int, msgspec.Meta(gt=0)], ...] = ()


def planned_of(terms: Terms) -> PlannedTerms:
    """Return the terms as a record has them."""
    mechanism = terms.mechanism
    names = [name for name in mechanism.__struct_fields__ if name not in _LEFT_OUT]
    later = _later(type(mechanism))
    told = {name: msgspec.to_builtins(getattr(mechanism, name)) for name in names}
    parameters = {name: value for name, value in told.items() if name not in later or value != later[name]}
    if mechanism.counts_keys:
        parameters[_KEYS] = cast(Any, mechanism).layout.keys
    if mechanism.counts_shares:
        parts = cast(Any, mechanism).layout.shares[0] * UNIT
        parameters[_SHARES] = np.rint(parts).astype(np.int64).tolist()
    tag = mechanism.__struct_config__.tag
    return PlannedTerms(batch=terms.batch, honest=terms.honest, mechanism={"type": tag, **parameters})


def _later(kind: type[Mechanism]) -> dict[str, Any]:
    """Return parameters that came later, with the value that leaves them out, as in the terms themselves."""
    fields = msgspec.structs.fields(kind) if kind.__struct_config__.omit_defaults else ()
    return {field.name: field.default for field in fields if not field.required}


def terms_of(row: PlannedTerms, spec: type[Spec], privacy: Privacy, reports: int) -> Terms:
    """Return the terms that a row has under a promise; their mechanism works on stand-ins for keys."""
    serves = privacy.trust.serves
    asked = [one for one in (spec.question, *spec.capabilities.further_questions) if one in serves]
    kinds = [kind for one in asked for kind in serves[one].mechanisms]
    kind = next((kind for kind in kinds if kind.__struct_config__.tag == row.mechanism.get("type")), None)
    if kind is None:
        raise SpecError("the trust model does not have this mechanism", field="mechanism.type")
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    told = _later(kind) | row.mechanism
    counted = {_KEYS} if kind.counts_keys else {_SHARES} if kind.counts_shares else set()
    if wrong := (set(types) - _LEFT_OUT | {"type"} | counted) ^ set(told):
        raise SpecError("missing, or unknown", field=f"mechanism.{min(wrong)}")
    layout = _groups(told[_SHARES]) if kind.counts_shares else _keys(told.get(_KEYS, 0))
    stand_ins = {"layout": layout, "seed": 0, "least": row.honest}
    try:
        made = {name: msgspec.convert(told[name], prepared(types[name])) for name in set(types) - _LEFT_OUT}
        mechanism = kind(**made, **{name: stand_ins[name] for name in set(types) & _LEFT_OUT})
    except (msgspec.ValidationError, OverflowError) as error:
        raise SpecError(f"there is no such mechanism: {error}", field="mechanism") from None
    except SpecError as error:
        raise SpecError(error.detail, field=f"mechanism.{error.field}") from None
    promise = (privacy.model, privacy.bound, privacy.delta, privacy.trust.calibration)
    return Terms(*promise, row.batch, row.honest, cast(AnyMechanism, mechanism), reports)


def _keys(count: Any) -> Layout:
    """Return a layout of so many keys, instead of one that costs no privacy otherwise."""
    if type(count) is not int or not 0 <= count < SYMBOLS_MAX:
        raise SpecError(f"must be a whole number below {SYMBOLS_MAX}", field=f"mechanism.{_KEYS}")
    return Layout(0, np.zeros((count, 0), np.uint32))


def _groups(parts: Any) -> Layout:
    """Return a layout of one key whose groups have so many parts of the coins."""
    whole = isinstance(parts, list) and all(type(part) is int and 0 <= part <= UNIT for part in parts)
    if not whole or sum(parts) != UNIT:
        raise SpecError(f"must be whole numbers of 0 or more with the sum {UNIT}", field=f"mechanism.{_SHARES}")
    return Layout(0, np.cumsum(parts[:-1], dtype=np.uint32)[None])


def make_record(spec: Spec, rounds: Mapping[str, Sequence[Row]], silent: Sequence[int] = ()) -> Record:
    """Return the record of an experiment.

    spec: the last one: what changes while an experiment runs is nothing that a record or a promise depends on.
    rounds: the rounds of each cohort in the order of their versions.
    silent: versions that asked nobody, in order.
    """
    sources = [cohort for cohort in spec.cohorts if cohort and spec.first_batch(cohort)]
    defaults = {} if spec.privacy.trust.batched else {name: idle_default(name) for name in OF_BATCHES}
    return Record(
        format=FORMAT,
        experiment=spec.name,
        algorithm=spec.algorithm.name,
        model=spec.privacy.model,
        reports_per_person=spec.reports,
        privacy=spec.privacy.model_dump(mode="json", exclude=set(PROMISE)) | defaults,
        least_share=spec.least_share,
        sources=tuple(SourcePromise(name=one, **_promise(spec, one, rounds.get(one, ()))) for one in sources),
        silent=tuple(silent),
        **_promise(spec, "", rounds.get("", ())),
    )


def _promise(spec: Spec, cohort: str, rounds: Sequence[Row]) -> dict[str, Any]:
    privacy = spec.privacy_of(cohort)
    ahead = None if rounds else spec.planned(cohort)
    terms = [ahead] if ahead else [terms_of(row, type(spec), privacy, spec.reports) for row in rounds]
    return {
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "rounds": tuple(rounds),
        "planned": planned_of(ahead) if ahead else None,
        "certificate": certify(spec.name, privacy, terms, planned=ahead is not None),
    }
