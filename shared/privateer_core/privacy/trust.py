"""The trust models: a table with a row for each, the only definition of a model.

A row has the views of the parties, the recipient of reports, the mechanisms for each statistical primitive, their
calibrations, and the event of a participant that the promise is about. Specs, devices and services use it.
"""

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from privateer_core.accounting.allotment import Allotment
from privateer_core.accounting.events import Event
from privateer_core.errors import SpecError
from privateer_core.mechanisms import AnyMechanism, Mechanism
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.screened_moments import ScreenedMoments
from privateer_core.mechanisms.shared_votes import SharedPairs, SharedProducts, SharedSums, SharedTriples
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.tiered_symbol import TieredSymbol
from privateer_core.mechanisms.vectors.row_sums import RowSums
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
from privateer_core.primitives.row_ball import ROWS
from privateer_core.privacy import calibrations
from privateer_core.privacy.calibrations import Guarantee

TIGHT: Final = "tight"
"""Name of the calibration by this version's accountant; terms in a record that names none are of it."""
CALIBRATIONS: Final = {TIGHT: 1.1}
"""The calibrations that devices accept, with the largest ratio of a bound to the local epsilon that each may leave.

A tighter accountant takes a new name, and the old ones a larger factor (docs/accounting.md).
"""
BATCH_MIN: Final = 100
"""Smallest ``min_batch`` of reports that are amplified by shuffling."""
BATCH_MIN_BY_EPSILON: Final = ((4.0, BATCH_MIN), (2.0, 300))
"""Pairs of an epsilon and the ``min_batch`` from it on: a report of that local epsilon needs no batch at all."""
BATCH_USUAL: Final = 1000
"""The ``min_batch`` of smaller epsilons, and of reports with noise for the batch."""
LOCAL_EPSILON_MAX: Final = 16.0
"""Largest value of ``local_epsilon_max``."""
_LOCAL_EPSILON_MIN, _LOCAL_EPSILON_SURPLUS = 4.0, 2.0
_HONEST_CLIENTS_ASSUMPTION: Final = "devices run the client library"


class Promise(Guarantee, Protocol):
    """The settings of a spec's ``[privacy]`` that rounds need."""

    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def trust(self) -> "Trust": ...  # noqa: D102
    @property
    def min_batch(self) -> int: ...  # noqa: D102
    @property
    def honest_fraction(self) -> float: ...  # noqa: D102
    @property
    def is_as_local(self) -> bool: ...  # noqa: D102


Calibrate = Callable[[Guarantee, int, Any, Allotment | None], AnyMechanism]
"""A function from (privacy, honest participants, question, allotment of a report) to the most informative mechanism
that keeps the promise."""


class Serving(msgspec.Struct, frozen=True):
    """The mechanisms of a trust model for one kind of question."""

    mechanisms: tuple[type[Mechanism], ...]  # the possible mechanisms
    calibrate: Calibrate  # function that chooses and calibrates one of them
    # whether it can keep a report within an `Allotment`, so that several reports of a participant share a promise
    can_share: bool = False
    # norms that the question's vectors may have, as `Mechanism.norm`; None: its reports are no vectors
    norms: tuple[str | None, ...] = (None,)


class Curator(StrEnum):
    """A party that sees records as they are."""

    NOBODY = "nobody"
    SERVER = "server"


class NoiseOrigin(StrEnum):
    """A party that adds noise, and what it adds noise to."""

    NOBODY = "nobody"  # nothing is promised
    DEVICES = "devices"  # each device, to its report
    CURATOR = "curator"  # who sees the records, once, to their sums
    SERVERS = "servers"  # each of two servers that see no records, to its own share of the sums


class Crowd(StrEnum):
    """The people whose reports the adversary of the promise sees together with a person's."""

    NOBODY = "nobody"  # each report keeps the promise by itself
    BATCH = "batch"  # the honest people of a batch, whom the promise counts on, so that no fewer may be released
    RELEASE = "release"  # everybody in a release, however few or dishonest: reports have no noise


class Recipient(StrEnum):
    """A service that takes the reports, by its name on the wire."""

    SERVER = "server"
    SHUFFLER = "shuffler"


class Trust(msgspec.Struct, frozen=True):
    """A trust model."""

    name: str  # name in specs
    sees: str  # the server's view of a participant
    endpoint: Recipient
    curator: Curator
    noise: NoiseOrigin
    crowd: Crowd
    delta_least: float  # smallest delta above 0 that the accountant certifies
    reader: str  # the adversary of the promise
    assumes: tuple[str, ...]  # assumptions that no computation can check
    # event of a participant for the adversary, from mechanism and number of honest participants; None: the record
    event: Callable[[Mechanism, int], Event | None]
    serves: Mapping[type[Question], Serving]  # mechanisms by kind of question
    # a promise for small instances in tests: ``epsilon`` and ``delta`` if the model needs them
    example: Mapping[str, float]
    # name of the calibration in terms, one of `CALIBRATIONS`: devices accept no other, and services run nothing else
    calibration: str = TIGHT
    is_served: bool = True  # whether services and devices have its protocol

    @property
    def is_simulated(self) -> bool:
        """Whether terms are for simulation alone: services lack the protocol, or the calibration of `CALIBRATIONS`."""
        return self.calibration not in CALIBRATIONS or not self.is_served

    @property
    def promises(self) -> bool:
        """Whether an epsilon is promised."""
        return self.noise is not NoiseOrigin.NOBODY

    @property
    def hides_arms(self) -> bool:
        """Whether the promise is about a function of many reports, in which a seen arm must not identify one."""
        return self.promises and self.crowd is not Crowd.NOBODY


TRUST: Final[dict[str, Trust]] = {
    row.name: row
    for row in (
        Trust(
            name="local",
            sees="randomized reports, each private by itself",
            endpoint=Recipient.SERVER,
            curator=Curator.NOBODY,
            noise=NoiseOrigin.DEVICES,
            crowd=Crowd.NOBODY,
            delta_least=0.0,
            reader="everybody together",
            assumes=(_HONEST_CLIENTS_ASSUMPTION,),
            event=lambda mechanism, _: mechanism.report_event,
            serves={
                KeyedMeans: Serving((SignedSymbol, EventSymbol, TieredSymbol), calibrations.local_means),
                SmallDomainMeans: Serving((SignedSymbol, EventSymbol, TieredSymbol), calibrations.local_means),
                KeyedHits: Serving((NamedSymbol,), calibrations.choose_hit_symbol),
                VectorSum: Serving((VectorSymbol, GaussianVectors), calibrations.local_vectors, norms=("max",)),
                L2VectorSum: Serving(
                    (VectorSymbol, GaussianVectors), calibrations.local_vectors, norms=("l2", "joint")
                ),
                SecondMoments: Serving((VectorSymbol,), calibrations.local_vectors, norms=("l2",)),
                FeatureMeans: Serving((NamedSymbol,), calibrations.local_features),
            },
            example={"epsilon": 4.0},
        ),
        Trust(
            name="shuffle",
            sees="a permuted batch of randomized reports",
            endpoint=Recipient.SHUFFLER,
            curator=Curator.NOBODY,
            noise=NoiseOrigin.DEVICES,
            crowd=Crowd.BATCH,
            delta_least=1e-15,
            reader="the server",
            assumes=(
                _HONEST_CLIENTS_ASSUMPTION,
                "the shuffler does not collude with the server",
                "of every batch, at least as many reports as the event says come from honest people",
            ),
            event=lambda mechanism, honest: mechanism.batch_event(honest),
            serves={
                KeyedMeans: Serving(
                    (SignedSymbol, EventSymbol, GroupedBit), calibrations.shuffled_means, can_share=True
                ),
                SmallDomainMeans: Serving(
                    (SignedSymbol, EventSymbol, NamedSymbol, GroupedBit), calibrations.shuffled_names
                ),
                KeyedHits: Serving((NamedSymbol,), calibrations.choose_hit_symbol),
                VectorSum: Serving((BitVectors,), calibrations.shuffled_vectors, norms=("max",)),
                L2VectorSum: Serving((VectorSymbol,), calibrations.shuffled_symbols, can_share=True, norms=("l2",)),
                SecondMoments: Serving((BitVectors,), calibrations.shuffled_vectors, norms=("max",)),
                FeatureMeans: Serving((NamedSymbol,), calibrations.shuffled_features, can_share=True),
            },
            example={"epsilon": 1.0, "delta": 1e-6},
        ),
        Trust(
            name="split",
            sees="a share of each vote, which tells nothing without the shuffler's, and adds noise to its sums",
            endpoint=Recipient.SHUFFLER,
            curator=Curator.NOBODY,
            noise=NoiseOrigin.SERVERS,
            crowd=Crowd.RELEASE,
            delta_least=1e-8,
            reader="the server or the shuffler, each by itself",
            assumes=(
                "the shuffler and the server do not pool shares",
                "the other one adds noise from its operating system, once for each vote, and reveals it to nobody",
                "nobody can tell the numbers that TurboSHAKE128 makes of an unknown seed from random ones",
            ),
            event=lambda mechanism, _: mechanism.release_event,
            serves={
                KeyedMeans: Serving((SharedSums, SharedPairs), calibrations.shared_means, can_share=True),
                SmallDomainMeans: Serving((SharedSums, SharedPairs), calibrations.shared_names),
                KeyedHits: Serving((SharedPairs, SharedTriples, SharedProducts), calibrations.shared_hits),
            },
            example={"epsilon": 1.0, "delta": 1e-6},
            is_served=False,
        ),
        Trust(
            name="central",
            sees="records, as their curator, and adds noise to what it releases",
            endpoint=Recipient.SERVER,
            curator=Curator.SERVER,
            noise=NoiseOrigin.CURATOR,
            crowd=Crowd.RELEASE,
            delta_least=1e-8,
            reader="readers of what is published",
            assumes=("the server keeps records to itself, and its noise comes from the operating system",),
            event=lambda mechanism, _: mechanism.release_event,
            serves={
                KeyedMeans: Serving((CentralSums, CellPairs), calibrations.central_means, can_share=True),
                SmallDomainMeans: Serving((CentralSums, CellPairs), calibrations.central_names),
                KeyedHits: Serving((CellPairs, CellTriples, CellProducts), calibrations.central_hits),
                VectorSum: Serving((CentralVectors,), calibrations.central_vectors, norms=("max",)),
                L2VectorSum: Serving(
                    (RowSums, RunningVectors), calibrations.central_vectors, can_share=True, norms=(ROWS,)
                ),
                SecondMoments: Serving((ScreenedMoments,), calibrations.noisy_moments, norms=("max",)),
                FeatureMeans: Serving((FeatureSums, CellPairs), calibrations.central_features, can_share=True),
            },
            example={"epsilon": 1.0, "delta": 1e-6},
        ),
        Trust(
            name="none",
            sees="records, and adds no noise",
            endpoint=Recipient.SERVER,
            curator=Curator.SERVER,
            noise=NoiseOrigin.NOBODY,
            crowd=Crowd.RELEASE,
            delta_least=0.0,
            reader="readers of what is published",
            assumes=("the server keeps records to itself",),
            event=lambda _mechanism, _honest: None,
            serves={
                KeyedMeans: Serving((CentralSums,), calibrations.exact_means),
                SmallDomainMeans: Serving((CentralSums,), calibrations.exact_means),
                KeyedHits: Serving((CellPairs, CellTriples, CellProducts), calibrations.exact_hits),
                VectorSum: Serving((CentralVectors,), calibrations.exact_vectors, norms=("max",)),
                L2VectorSum: Serving((RowSums,), calibrations.exact_vectors, norms=(ROWS,)),
                SecondMoments: Serving((ScreenedMoments,), calibrations.exact_moments, norms=("max",)),
                FeatureMeans: Serving((FeatureSums,), calibrations.exact_features),
            },
            example={},
        ),
    )
}


def trust_of(model: str) -> Trust:
    """Return the row of a trust model; refuse an unknown one."""
    if model not in TRUST:
        raise SpecError(f"must be one of {', '.join(TRUST)}", field="privacy.model", remedy="choose one")
    return TRUST[model]


def default_local_epsilon(model: str, epsilon: float) -> float:
    """Return the default ``local_epsilon_max`` of a promise.

    It is above the promise by at least 2, or batches could not be more informative than local reports;
    docs/privacy/shuffling.md has the price. Without batches the key has no effect.
    """
    raised_epsilon = epsilon + _LOCAL_EPSILON_SURPLUS if trust_of(model).crowd is Crowd.BATCH else 0.0
    return min(LOCAL_EPSILON_MAX, max(_LOCAL_EPSILON_MIN, raised_epsilon))


def default_min_batch(model: str, epsilon: float) -> int:
    """Return the default ``min_batch`` of a promise whose reports are locally private, too."""
    if trust_of(model).crowd is not Crowd.BATCH:
        return BATCH_USUAL
    return next((batch for min_epsilon, batch in BATCH_MIN_BY_EPSILON if epsilon >= min_epsilon), BATCH_USUAL)


def local_trust() -> Trust:
    """Return the trust model whose reports are locally private, without a shuffler or curator."""
    return next(row for row in TRUST.values() if row.crowd is Crowd.NOBODY)


def count_honest(privacy: Promise, fewest: int) -> int:
    """Return the number of honest participants of a batch of at least ``fewest`` that the promise counts on, or 0.

    The number is rounded down to three digits, so that calibrations recur from round to round.
    """
    if privacy.trust.crowd is not Crowd.BATCH:
        return 0
    n_honest = math.floor(privacy.honest_fraction * fewest)
    step = int(10 ** max(0, len(str(n_honest)) - 3))
    return n_honest // step * step


def can_share_promise(privacy: Promise, question: type[Question]) -> bool:
    """Whether several reports of a participant may share a promise, or need not share one."""
    row = privacy.trust
    return row.crowd is Crowd.NOBODY or not row.promises or row.serves[question].can_share


def has_batch_noise(privacy: Promise, question: type[Question]) -> bool:
    """Whether reports on this kind of question have noise for a batch, and are hardly private by themselves."""
    row = privacy.trust
    is_batched = row.crowd is Crowd.BATCH and question in row.serves
    return is_batched and not all(kind.pure for kind in row.serves[question].mechanisms)


def check_promise(privacy: Promise, question: type[Question]) -> None:
    """Refuse a promise that no mechanism of the trust model keeps for this kind of question."""
    row = privacy.trust
    if question not in row.serves:
        raise _privacy_error("model", f"'{row.name}' has no mechanism for the algorithm's reports", "choose another")
    mechanisms = row.serves[question].mechanisms
    if not row.promises:
        return
    if privacy.delta > 0 and row.crowd is Crowd.NOBODY and all(kind.pure for kind in mechanisms):
        raise _privacy_error("delta", f"must be 0 under the model '{row.name}': its reports keep it", "remove it")
    needs_delta = privacy.delta > 0 or row.crowd is Crowd.BATCH or issubclass(question, VectorSum | FeatureMeans)
    min_delta = row.delta_least if needs_delta else 0.0
    if privacy.delta < min_delta:
        raise _privacy_error("delta", f"must be at least {min_delta:g} under the model '{row.name}'", "1e-6 is usual")
    if row.crowd is Crowd.BATCH and all(kind.pure for kind in mechanisms):
        _check_amplified(privacy)


def _check_amplified(privacy: Promise) -> None:
    """Refuse impossible settings of a batch whose reports are locally private, too."""
    if privacy.local_epsilon_max < privacy.bound:
        detail = f"must be at least epsilon, {privacy.bound:g}, not {privacy.local_epsilon_max:g}"
        usual = default_local_epsilon(privacy.model, privacy.bound)
        raise _privacy_error("local_epsilon_max", detail, f"raise it; {usual:g} is usual")
    if privacy.min_batch < BATCH_MIN:
        raise _privacy_error("min_batch", f"must be at least {BATCH_MIN}", "raise it; 1000 is usual")
    if privacy.honest_fraction * privacy.min_batch < 1:
        raise _privacy_error("honest_fraction", "must leave at least one report of min_batch", "raise it")


def _privacy_error(field: str, detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field=f"privacy.{field}", remedy=remedy)
