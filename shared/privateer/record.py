"""The privacy record of an experiment: every round's terms, beside the certificate that they make.

A certificate shows that its claims follow from its events. A record shows more: that the events are those of the rounds
it lists, since its certificate is made anew from these and must come out the same.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Annotated, Any, Final, Literal

import msgspec

from privateer import verification
from privateer.certificate import Certificate, certify
from privateer.experiment import Model, Privacy
from privateer.mechanisms import vector_verification
from privateer.mechanisms.vector_certificate import certify_vectors
from privateer.mechanisms.vector_terms import VectorTerms
from privateer.phased import VectorPrivacy
from privateer.sections import Section
from privateer.terms import Terms

FORMAT: Final = "privateer/record/1"
JUMP: Final = 1_000_000
"""Versions up to the next multiple of it may have been published, if a database was replaced by an earlier copy."""
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}\Z")]
PROMISE: Final = frozenset({"model", "epsilon", "delta"})
"""Terms of a cohort's rounds that are the same in all of them; a row leaves them out."""
ROW: Final = frozenset({"version", "received", "released"})
"""What a row says beside its terms."""


class Promise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the people of one cohort are promised.

    Attributes
    ----------
    epsilon, delta
        The promise; an epsilon of None promises nothing.
    rounds
        Rows: a round's version, the people asked and received, whether it was released, and its terms.
    planned
        The terms of the first round as calibrated ahead of it, in place of rounds as long as there are none.
    certificate
        Of these rounds, or of the one that is planned.
    """

    epsilon: float | None
    delta: float
    rounds: tuple[dict[str, Any], ...]
    planned: dict[str, Any] | None
    certificate: Certificate


class Source(Promise, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The promise to a source's people."""

    name: Name


class Record(Promise, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole record; its own promise is that to the experiment's own people.

    Attributes
    ----------
    privacy
        The spec's section of that name, but for model, epsilon and delta.
    least_share
        Of a round's people: with so many it may close.
    """

    format: Literal["privateer/record/1"]
    experiment: Name
    algorithm: Literal["partition", "phased"]
    model: Model
    reports_per_person: Literal[1]
    privacy: dict[str, Any]
    least_share: Annotated[float, msgspec.Meta(gt=0, le=1)]
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Family:
    """How the rows of a family of algorithms make a certificate.

    Attributes
    ----------
    privacy, terms
        Types of the spec's section and of a round's terms.
    promised
        What terms must say by the section, the people asked and the fewest of them with whom a round may close.
    certify
        The certificate of rounds of an experiment.
    mechanisms
        Of a trust model.
    used
        The terms that a mechanism goes by.
    idle
        How terms are that a mechanism does not go by.
    """

    privacy: type[Section]
    terms: type[Any]
    promised: Callable[[Any, int, int], dict[str, Any]]
    certify: Callable[[str, Any, Iterable[Any]], Certificate]
    mechanisms: Mapping[str, tuple[str, ...]]
    used: Mapping[str, frozenset[str]]
    idle: Mapping[str, Any]


KEYED: Final = Family(
    Privacy,
    Terms,
    lambda privacy, batch, _: verification.promised(privacy, batch),
    lambda name, privacy, terms: certify(name, privacy.bound, privacy.delta, terms),
    {"local": ("signed-symbol", "laplace"), "shuffle": ("signed-symbol",), "central": ("gaussian",), "none": ("none",)},
    {
        "signed-symbol": frozenset({"local_epsilon", "buckets", "elsewhere"}),
        "laplace": frozenset({"local_epsilon"}),
        "gaussian": frozenset({"standard_deviation"}),
        "none": frozenset(),
    },
    {"local_epsilon": math.inf, "buckets": 1, "elsewhere": False, "standard_deviation": 0.0},
)
VECTORS: Final = Family(
    VectorPrivacy,
    VectorTerms,
    vector_verification.promised,
    lambda name, _, terms: certify_vectors(name, terms),
    vector_verification.MECHANISMS,
    {
        "symbol": frozenset({"directions", "chosen"}),
        "normal": frozenset({"standard_deviation"}),
        "curated": frozenset({"standard_deviation"}),
        "bits": frozenset({"levels", "bits", "probability"}),
    },
    {field.name: field.default for field in fields(VectorTerms) if field.default is not MISSING},
)
FAMILIES: Final = {"partition": KEYED, "phased": VECTORS}


def terms_names(kind: type[Any]) -> frozenset[str]:
    """The terms that a row has: a seed costs no privacy."""
    return frozenset(field.name for field in fields(kind)) - PROMISE - {"seed"}


def row_of(terms: Terms | VectorTerms) -> dict[str, Any]:
    """A round's terms as a row has them: without what its whole cohort is promised, and None for infinity."""
    told = asdict(terms)
    return {name: None if told[name] == math.inf else told[name] for name in told if name in terms_names(type(terms))}
