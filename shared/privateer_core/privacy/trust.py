"""The trust models: one table, a row for each. What a model is stands here and nowhere else.

A row says who sees what, where reports are sent, which mechanisms serve each statistical primitive, how they are
calibrated, and which event of a person the promise is about. Specs, devices, certificates and services ask the row.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from privateer_core.accounting.allotment import Allotment
from privateer_core.accounting.events import Event
from privateer_core.errors import SpecError
from privateer_core.mechanisms import AnyMechanism, Mechanism
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.screened_moments import ScreenedMoments
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.mechanisms.vectors.vector_bits import BitVectors
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.questions import (
    FeatureMeans,
    KeyedHits,
    KeyedMeans,
    L2VectorSum,
    Question,
    SecondMoments,
    SmallDomainMeans,
    VectorSum,
)
from privateer_core.privacy import calibrations
from privateer_core.privacy.calibrations import Calibrated

TIGHT: Final = "tight"
"""The calibration that keeps its promise and says most."""
BATCH_MIN: Final = 100
"""The least ``min_batch`` of reports that are amplified by shuffling."""
BATCHES: Final = ((4.0, BATCH_MIN), (2.0, 300))
"""From which epsilons on batches of how many tell enough: a report of that local epsilon needs no crowd at all."""
BATCH_USUAL: Final = 1000
"""The ``min_batch`` of smaller epsilons, and of reports whose noise is for the batch."""
LOCAL_EPSILON_MOST: Final = 16.0
"""The most that ``local_epsilon_max`` may be."""
_LOCAL_EPSILON, _ABOVE = 4.0, 2.0
_HONEST: Final = "devices run the client library"


class Promise(Calibrated, Protocol):
    """The ``[privacy]`` of a spec, as far as rounds need it."""

    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def trust(self) -> "Trust": ...  # noqa: D102
    @property
    def min_batch(self) -> int: ...  # noqa: D102
    @property
    def honest_fraction(self) -> float: ...  # noqa: D102
    @property
    def as_alone(self) -> bool: ...  # noqa: D102


Calibrate = Callable[[Calibrated, int, Any, Allotment | None], AnyMechanism]
"""(privacy, honest people, question, what one of several reports of a person may cost) to the mechanism that keeps the
promise and says most."""


@dataclass(frozen=True)
class Serving:
    """The answer of a trust model to one kind of question."""

    mechanisms: tuple[type[Mechanism], ...]  # those that may serve it
    calibrate: Calibrate  # chooses among them
    # whether it can keep a report within an `Allotment`, so that several reports of a person share a promise
    shares_out: bool = False


@dataclass(frozen=True)
class Trust:
    """One trust model."""

    name: str  # the name that specs give it
    sees: str  # what the server sees of a person
    endpoint: Literal["server", "shuffler"]  # who takes the reports: the server, or the shuffler
    curated: bool  # whether the server sees records as they are
    promises: bool  # whether an epsilon is promised
    batched: bool  # whether the promise counts on the honest people of a batch, so that no fewer may be released
    delta_least: float  # the least delta above 0 that the accountant certifies
    reader: str  # the adversary of the promise
    assumes: tuple[str, ...]  # what no computation can check
    # what the adversary of the promise sees of a person: of a mechanism, and of the honest people; None: the record
    event: Callable[[Mechanism, int], Event | None]
    serves: Mapping[type[Question], Serving]  # how each kind of question is answered
    # a promise for small instances in tests: ``epsilon`` and ``delta`` where they are needed
    example: Mapping[str, float]
    # what the calibration is called in terms. Devices take `TIGHT` alone, and services run nothing else.
    calibration: str = TIGHT

    @property
    def shuffled(self) -> bool:
        """Whether reports go through a shuffler."""
        return self.endpoint == "shuffler"

    @property
    def draws_one(self) -> bool:
        """Whether who comes back reports one time of all, drawn in advance: no crowd makes repetition cheap."""
        return self.promises and not (self.batched or self.curated)

    @property
    def hides_arms(self) -> bool:
        """Whether the promise is about what becomes of many reports, among which a seen arm must not single one out."""
        return self.promises and (self.batched or self.curated)


TRUST: Final[dict[str, Trust]] = {
    row.name: row
    for row in (
        Trust(
            name="local",
            sees="randomized reports, each private by itself",
            endpoint="server",
            curated=False,
            promises=True,
            batched=False,
            delta_least=0.0,
            reader="everybody together",
            assumes=(_HONEST,),
            event=lambda mechanism, _: mechanism.alone,
            serves={
                KeyedMeans: Serving((SignedSymbol, EventSymbol), calibrations.symbol),
                SmallDomainMeans: Serving((SignedSymbol, EventSymbol), calibrations.symbol),
                KeyedHits: Serving((NamedSymbol,), calibrations.local_hits),
                VectorSum: Serving((VectorSymbol, GaussianVectors), calibrations.local_vectors),
                L2VectorSum: Serving((VectorSymbol, GaussianVectors), calibrations.local_vectors),
                SecondMoments: Serving((VectorSymbol,), calibrations.local_symbols),
                FeatureMeans: Serving((NamedSymbol,), calibrations.local_features),
            },
            example={"epsilon": 4.0},
        ),
        Trust(
            name="shuffle",
            sees="a permuted batch of randomized reports",
            endpoint="shuffler",
            curated=False,
            promises=True,
            batched=True,
            delta_least=1e-15,
            reader="the server",
            assumes=(
                _HONEST,
                "the shuffler does not collude with the server",
                "of every batch, at least as many reports as the event says come from honest people",
            ),
            event=lambda mechanism, honest: mechanism.shuffled(honest),
            serves={
                KeyedMeans: Serving(
                    (SignedSymbol, EventSymbol, GroupedBit), calibrations.shuffled_means, shares_out=True
                ),
                SmallDomainMeans: Serving(
                    (SignedSymbol, EventSymbol, NamedSymbol, GroupedBit), calibrations.shuffled_names
                ),
                KeyedHits: Serving((NamedSymbol,), calibrations.shuffled_hits),
                VectorSum: Serving((BitVectors,), calibrations.shuffled_vectors),
                L2VectorSum: Serving((VectorSymbol,), calibrations.shuffled_directions, shares_out=True),
                SecondMoments: Serving((BitVectors,), calibrations.shuffled_vectors),
                FeatureMeans: Serving((NamedSymbol,), calibrations.shuffled_features, shares_out=True),
            },
            example={"epsilon": 1.0, "delta": 1e-6},
        ),
        Trust(
            name="central",
            sees="records, as their curator, and adds noise to what it releases",
            endpoint="server",
            curated=True,
            promises=True,
            batched=False,
            delta_least=1e-8,
            reader="readers of what is published",
            assumes=("the server keeps records to itself, and its noise comes from the operating system",),
            event=lambda mechanism, _: mechanism.released,
            serves={
                KeyedMeans: Serving((CentralSums, CellPairs), calibrations.central_means, shares_out=True),
                SmallDomainMeans: Serving((CentralSums, CellPairs), calibrations.central_names),
                KeyedHits: Serving((CellPairs, CellTriples, CellProducts), calibrations.central_hits),
                VectorSum: Serving((CentralVectors, RunningVectors), calibrations.central_vectors),
                L2VectorSum: Serving((CentralVectors, RunningVectors), calibrations.central_vectors, shares_out=True),
                SecondMoments: Serving((ScreenedMoments,), calibrations.central_moments),
                FeatureMeans: Serving((CentralVectors, CellPairs), calibrations.central_features, shares_out=True),
            },
            example={"epsilon": 1.0, "delta": 1e-6},
        ),
        Trust(
            name="none",
            sees="records, and adds no noise",
            endpoint="server",
            curated=True,
            promises=False,
            batched=False,
            delta_least=0.0,
            reader="readers of what is published",
            assumes=("the server keeps records to itself",),
            event=lambda _mechanism, _honest: None,
            serves={
                KeyedMeans: Serving((CentralSums,), calibrations.exact_means),
                SmallDomainMeans: Serving((CentralSums,), calibrations.exact_means),
                KeyedHits: Serving((CellPairs, CellTriples, CellProducts), calibrations.exact_hits),
                VectorSum: Serving((CentralVectors,), calibrations.exact_vectors),
                L2VectorSum: Serving((CentralVectors,), calibrations.exact_vectors),
                SecondMoments: Serving((ScreenedMoments,), calibrations.exact_moments),
                FeatureMeans: Serving((CentralVectors,), calibrations.exact_vectors),
            },
            example={},
        ),
    )
}


def trust_of(model: str) -> Trust:
    """Return the row of a trust model."""
    if model not in TRUST:
        raise SpecError(f"must be one of {', '.join(TRUST)}", field="privacy.model", remedy="choose one")
    return TRUST[model]


def usual_local_epsilon(model: str, epsilon: float) -> float:
    """Return the ``local_epsilon_max`` of a promise that does not say one.

    Above the promise by 2 at least, or batches could not tell more than reports that stand alone;
    docs/privacy/shuffling.md has the price. Where no batch hides a report the key does nothing.
    """
    above = epsilon + _ABOVE if trust_of(model).batched else 0.0
    return min(LOCAL_EPSILON_MOST, max(_LOCAL_EPSILON, above))


def usual_batch(model: str, epsilon: float) -> int:
    """Return the ``min_batch`` of a promise that does not say one, where reports are private by themselves, too."""
    if not trust_of(model).batched:
        return BATCH_USUAL
    return next((people for least, people in BATCHES if epsilon >= least), BATCH_USUAL)


def stands_alone() -> Trust:
    """Return the trust model whose reports are private by themselves, and hidden by nobody."""
    return next(row for row in TRUST.values() if row.draws_one)


def noiseless(privacy: Promise, question: Question) -> AnyMechanism:
    """Return a mechanism for a question that nobody is asked, whatever is promised."""
    row = next(row for row in TRUST.values() if not row.promises)
    return row.serves[type(question)].calibrate(privacy, 0, question, None)


def honest_people(privacy: Promise, fewest: int) -> int:
    """Return how many people of a batch of ``fewest`` or more the promise counts on; 0 where it counts on none.

    The number is rounded down to three digits, so that calibrations recur from round to round.
    """
    if not privacy.trust.batched:
        return 0
    count = math.floor(privacy.honest_fraction * fewest)
    step = int(10 ** max(0, len(str(count)) - 3))
    return count // step * step


def shares_out(privacy: Promise, question: type[Question]) -> bool:
    """Whether several reports of a person may share a promise; or need not, as one is made alone, or none promised."""
    row = privacy.trust
    return row.draws_one or not row.promises or row.serves[question].shares_out


def hidden_in_batches(privacy: Promise, question: type[Question]) -> bool:
    """Whether reports on this kind of question have noise for a batch, and tell all but the record by themselves."""
    row = privacy.trust
    return row.batched and question in row.serves and not all(kind.pure for kind in row.serves[question].mechanisms)


def check_promise(privacy: Promise, question: type[Question]) -> None:
    """Refuse a promise that the trust model's mechanisms for this kind of question cannot make."""
    row = privacy.trust
    if question not in row.serves:
        raise _refused("model", f"'{row.name}' has no mechanism for the algorithm's reports", "choose another")
    mechanisms = row.serves[question].mechanisms
    if not row.promises:
        return
    if privacy.delta > 0 and not row.batched and not row.curated and all(kind.pure for kind in mechanisms):
        raise _refused("delta", f"must be 0 under the model '{row.name}': its reports keep it", "remove it")
    least = row.delta_least if privacy.delta > 0 or row.batched or issubclass(question, VectorSum) else 0.0
    if privacy.delta < least:
        raise _refused("delta", f"must be at least {least:g} under the model '{row.name}'", "1e-6 is usual")
    if row.batched and all(kind.pure for kind in mechanisms):
        _check_amplified(privacy)


def _check_amplified(privacy: Promise) -> None:
    """Refuse a promise of a batch whose reports are private by themselves, too."""
    if privacy.local_epsilon_max < privacy.bound:
        detail = f"must be at least epsilon, {privacy.bound:g}, not {privacy.local_epsilon_max:g}"
        raise _refused(
            "local_epsilon_max", detail, f"raise it; {usual_local_epsilon(privacy.model, privacy.bound):g} is usual"
        )
    if privacy.min_batch < BATCH_MIN:
        raise _refused("min_batch", f"must be at least {BATCH_MIN}", "raise it; 1000 is usual")
    if privacy.honest_fraction * privacy.min_batch < 1:
        raise _refused("honest_fraction", "must leave at least one report of min_batch", "raise it")


def _refused(field: str, detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field=f"privacy.{field}", remedy=remedy)
