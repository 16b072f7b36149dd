"""The privacy record of an experiment: every round's terms, with the certificate that follows from them.

A certificate shows that its claims follow from its events. A record also shows that the events are those of the rounds
it lists, since the verifier recomputes the certificate from these.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, cast

import msgspec
import numpy as np

from privateer_core.errors import SpecError
from privateer_core.mechanisms import AnyMechanism, Mechanism
from privateer_core.prepared_types import cache_decoder
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.privacy.certificate import Certificate, certify
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.trust import CALIBRATIONS, TIGHT, Crowd
from privateer_core.sampling.randomness import SYMBOLS_MAX
from privateer_core.spec.experiment import REPORTS_MAX
from privateer_core.spec.privacy import Privacy, default_of_idle_key
from privateer_core.spec.spec import Spec

FORMAT: Final = "privateer/record/2"
PROMISE: Final = frozenset({"model", "epsilon", "delta"})
"""Keys of the spec's privacy section that stand beside it in a record."""
OF_BATCHES: Final = frozenset({"local_epsilon_max"})
"""Keys of the same section that apply to batches: without batches, a record has their defaults."""
ORGANISATION_MAX: Final = 255
"""Largest number of characters of an organisation's name, which is a file name."""
_END: Final = r"(?![\s\S])"
"""The end of a text, in Python's regular expressions and in those of JSON Schema."""
KeyId = Annotated[str, msgspec.Meta(pattern=rf"^[0-9a-f]{{16}}{_END}")]
Organisation = Annotated[str, msgspec.Meta(max_length=ORGANISATION_MAX)]
Name = Annotated[str, msgspec.Meta(pattern=rf"^[a-z0-9][a-z0-9-]{{0,62}}{_END}")]
_LEFT_OUT: Final = frozenset({"layout", "seed", "least"})
"""Parameters of mechanisms that a row leaves out: the first two cost no privacy, the last repeats the honest people."""
_SHARES: Final = "shares"
"""Parts of 65,536 of the coins in each group, in the rows of mechanisms whose promise depends on them."""
_KEYS: Final = "keys"
"""Number of keys of the layout, in the rows of mechanisms whose promise depends on it."""


class PlannedTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The terms of a round, without the promise to its cohort."""

    # batch, honest: the number of invited participants, and of those whom the promise counts on
    batch_size: int
    honest: int
    # the mechanism's tag as ``type``, and its parameters without layout and seed, which cost no privacy; with the
    # number of keys if it determines the alphabet, and with the shares of groups if each is a batch
    mechanism: dict[str, Any]
    # name of the calibration; not there: `TIGHT`
    calibration: str | msgspec.UnsetType = msgspec.UNSET


class Row(PlannedTerms, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A round that was opened."""

    version: Annotated[int, msgspec.Meta(gt=0)]  # the policy's version
    # received, released: the number of participants with decrypted reports, and whether there was a release about them
    received: int
    released: bool
    # shuffler, organisation: where reports are shuffled: id of the key that signed the last batch of the round, and
    # whose key that was
    shuffler: KeyId | None = None
    organisation: Organisation | None = None


class CohortPromise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The promise to the participants of a cohort."""

    # epsilon, delta: the promise; an epsilon of None promises nothing
    epsilon: float | None
    delta: float
    rounds: tuple[Row, ...]  # the cohort's rounds, in the order of their versions
    # the terms of the first round as calibrated ahead of it, as long as there are no rounds
    planned: PlannedTerms | None
    certificate: Certificate  # what these rounds claim, or the one that is planned


class NamedPromise(CohortPromise, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The promise to the participants of a source or of a tier."""

    name: Name


class Record(CohortPromise, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole record; its own promise is that to the experiment's own participants."""

    format: Literal["privateer/record/2"]
    experiment: Name
    algorithm: str
    model: str
    # reports that a device makes in all, each in a round of its own: they share the promise
    reports_per_person: Annotated[int, msgspec.Meta(ge=1, le=REPORTS_MAX)]
    privacy: dict[str, Any]  # the spec's section of that name, without model, epsilon and delta
    # smallest share of a round's participants with whom it may close
    least_share: Annotated[float, msgspec.Meta(gt=0, le=1)]
    sources: tuple[NamedPromise, ...] = ()
    # promises between which participants chose, beside the experiment's own; their rounds are the experiment's, and
    # ``received`` counts reports of all tiers
    tiers: tuple[NamedPromise, ...] | msgspec.UnsetType = msgspec.UNSET
    # versions without participants, such as those of a pause: they have no rounds
    silent: tuple[Annotated[int, msgspec.Meta(gt=0)], ...] = ()

    @property
    def named_promises(self) -> tuple[NamedPromise, ...]:
        """The promises to participants of sources and of tiers."""
        return self.sources + (() if self.tiers is msgspec.UNSET else self.tiers)


def describe_terms(terms: Terms) -> PlannedTerms:
    """Return the row of terms in a record."""
    mechanism = terms.mechanism
    names = [name for name in mechanism.__struct_fields__ if name not in _LEFT_OUT]
    defaults = _optional_parameters(type(mechanism))
    values = {name: msgspec.to_builtins(getattr(mechanism, name)) for name in names}
    parameters = {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}
    if mechanism.counts_keys:
        parameters[_KEYS] = cast(Any, mechanism).layout.keys
    if mechanism.counts_shares:
        parameters[_SHARES] = np.rint(cast(Any, mechanism).layout.shares[0] * UNIT).astype(np.int64).tolist()
    tag = mechanism.__struct_config__.tag
    return PlannedTerms(
        batch_size=terms.batch_size,
        honest=terms.honest,
        mechanism={"type": tag, **parameters},
        calibration=msgspec.UNSET if terms.calibration == TIGHT else terms.calibration,
    )


def _optional_parameters(kind: type[Mechanism]) -> dict[str, Any]:
    """Return the defaults of parameters that a row omits at their default, as the terms themselves do."""
    fields = msgspec.structs.fields(kind) if kind.__struct_config__.omit_defaults else ()
    return {field.name: field.default for field in fields if not field.required}


def read_terms(row: PlannedTerms, spec: type[Spec], privacy: Privacy, reports: int) -> Terms:
    """Return the terms of a record's row under a promise; refuse a mechanism, or norm, that the trust model lacks."""
    calibration = TIGHT if row.calibration is msgspec.UNSET else row.calibration
    if calibration not in {*CALIBRATIONS, privacy.trust.calibration}:
        raise SpecError("another accountant made the terms: update this program", field="calibration")
    serves = privacy.trust.serves
    questions = [question for question in (spec.question, *spec.capabilities.further_questions) if question in serves]
    kinds = [(kind, serves[question]) for question in questions for kind in serves[question].mechanisms]
    pair = next((pair for pair in kinds if pair[0].__struct_config__.tag == row.mechanism.get("type")), None)
    if pair is None:
        raise SpecError("the trust model does not have this mechanism", field="mechanism.type")
    kind, serving = pair
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    parameters = _optional_parameters(kind) | row.mechanism
    counted_keys = {_KEYS} if kind.counts_keys else {_SHARES} if kind.counts_shares else set()
    if unexpected := (set(types) - _LEFT_OUT | {"type"} | counted_keys) ^ set(parameters):
        raise SpecError("missing, or unknown", field=f"mechanism.{min(unexpected)}")
    layout = _group_layout(parameters[_SHARES]) if kind.counts_shares else _key_layout(parameters.get(_KEYS, 0))
    stand_ins = {"layout": layout, "seed": 0, "least": row.honest}
    try:
        arguments = {
            name: msgspec.convert(parameters[name], cache_decoder(types[name])) for name in set(types) - _LEFT_OUT
        }
        mechanism = kind(**arguments, **{name: stand_ins[name] for name in set(types) & _LEFT_OUT})
    except (msgspec.ValidationError, OverflowError) as error:
        raise SpecError(f"there is no such mechanism: {error}", field="mechanism") from None
    except SpecError as error:
        raise SpecError(error.detail, field=f"mechanism.{error.field}") from None
    if mechanism.norm not in serving.norms:
        raise SpecError("the question's vectors have another norm", field="mechanism.ball.norm")
    promise = (privacy.model, privacy.bound, privacy.delta, calibration)
    return Terms(*promise, row.batch_size, row.honest, cast(AnyMechanism, mechanism), reports)


def _key_layout(count: Any) -> Layout:
    """Return a layout with ``count`` keys that stands in for the real one, and refuse an impossible number."""
    if type(count) is not int or not 0 <= count < SYMBOLS_MAX:
        raise SpecError(f"must be a whole number below {SYMBOLS_MAX}", field=f"mechanism.{_KEYS}")
    return Layout(0, np.zeros((count, 0), np.uint32))


def _group_layout(parts: Any) -> Layout:
    """Return a layout of one key with the shares of a row, in parts of 65,536, and refuse other sums."""
    is_valid = isinstance(parts, list) and all(type(share) is int and 0 <= share <= UNIT for share in parts)
    if not is_valid or sum(parts) != UNIT:
        raise SpecError(f"must be whole numbers of 0 or more with the sum {UNIT}", field=f"mechanism.{_SHARES}")
    return Layout(0, np.cumsum(parts[:-1], dtype=np.uint32)[None])


def make_record(spec: Spec, rounds: Mapping[str, Sequence[Row]], silent: Sequence[int] = ()) -> Record:
    """Build the privacy record of an experiment: the terms of its rounds, by cohort and tier.

    spec: the latest spec: records and promises do not depend on settings that change while an experiment runs.
    rounds: the rounds of each cohort in the order of their versions. Those of tiers are those of the empty cohort.
    silent: versions without participants, in order.
    """
    sources = [cohort for cohort in spec.cohorts if cohort and spec.first_batch(cohort)]
    own_rounds = rounds.get("", ())
    tiers = tuple(
        NamedPromise(name=name, **_describe_promise(spec, name, [row_of_tier(row, index) for row in own_rounds]))
        for index, name in enumerate(spec.privacy.tier_names)
        if name and (own_rounds or spec.first_batch(""))
    )
    defaults = (
        {} if spec.privacy.trust.crowd is Crowd.BATCH else {name: default_of_idle_key(name) for name in OF_BATCHES}
    )
    return Record(
        format=FORMAT,
        experiment=spec.name,
        algorithm=spec.algorithm.name,
        model=spec.privacy.model,
        reports_per_person=spec.reports,
        privacy=spec.privacy.model_dump(mode="json", exclude=set(PROMISE)) | defaults,
        least_share=spec.min_share,
        sources=tuple(
            NamedPromise(name=source, **_describe_promise(spec, source, rounds.get(source, ()))) for source in sources
        ),
        tiers=tiers or msgspec.UNSET,
        silent=tuple(silent),
        **_describe_promise(spec, "", own_rounds),
    )


def row_of_tier(row: Row, tier: int) -> Row:
    """Return the row of a round, which is that of the own epsilon, for the participants of a tier."""
    return msgspec.structs.replace(row, mechanism=row.mechanism | {"tier": tier})


def _describe_promise(spec: Spec, cohort: str, rounds: Sequence[Row]) -> dict[str, Any]:
    """Return a cohort's fields of a record: its promise, rounds or planned terms, and certificate."""
    privacy = spec.cohort_privacy(cohort)
    planned_terms = None if rounds else spec.first_terms(cohort)
    terms = [planned_terms] if planned_terms else [read_terms(row, type(spec), privacy, spec.reports) for row in rounds]
    return {
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "rounds": tuple(rounds),
        "planned": describe_terms(planned_terms) if planned_terms else None,
        "certificate": certify(spec.name, privacy, terms, planned=planned_terms is not None),
    }
