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
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.running_vectors import RunningVectors
from privateer_core.mechanisms.screened_moments import ScreenedMoments
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.vector_bits import BitVectors
from privateer_core.mechanisms.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vector_symbol import VectorSymbol
from privateer_core.primitives.public_coins import Layout, SlotLayout
from privateer_core.primitives.questions import (
    KeyedHits,
    KeyedMeans,
    L2VectorSum,
    Question,
    SecondMoments,
    SmallDomainMeans,
    VectorSum,
)

TIGHT: Final = "tight"
"""The calibration that keeps its promise and says most."""
BATCH_MIN: Final = 100
"""The least ``min_batch`` of reports that are amplified by shuffling."""
_HONEST: Final = "devices run the client library"


class Promise(Protocol):
    """The ``[privacy]`` of a spec, as far as a calibration needs it."""

    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def bound(self) -> float: ...  # noqa: D102
    @property
    def delta(self) -> float: ...  # noqa: D102
    @property
    def trust(self) -> "Trust": ...  # noqa: D102
    @property
    def min_batch(self) -> int: ...  # noqa: D102
    @property
    def honest_fraction(self) -> float: ...  # noqa: D102
    @property
    def local_epsilon_max(self) -> float: ...  # noqa: D102


Calibrate = Callable[[Promise, int, Any, Allotment | None], AnyMechanism]
"""(privacy, honest people, question, what one of several reports of a person may cost) to the mechanism that keeps the
promise and says most."""


@dataclass(frozen=True)
class Serving:
    """The answer of a trust model to one kind of question.

    Attributes
    ----------
    mechanisms
        Those that may serve it.
    calibrate
        Chooses among them.
    shares_out
        Whether it can keep a report within an `Allotment`, so that several reports of a person share a promise.
    """

    mechanisms: tuple[type[Mechanism], ...]
    calibrate: Calibrate
    shares_out: bool = False


@dataclass(frozen=True)
class Trust:
    """One trust model.

    Attributes
    ----------
    name
        The name that specs give it.
    sees
        What the server sees of a person.
    endpoint
        Who takes the reports: the server, or the shuffler.
    curated
        Whether the server sees records as they are.
    promises
        Whether an epsilon is promised.
    batched
        Whether the promise counts on the honest people of a batch, so that no fewer may be released.
    delta_least
        The least delta above 0 that the accountant certifies.
    reader
        The adversary of the promise.
    assumes
        What no computation can check.
    event
        What the adversary of the promise sees of a person: of a mechanism, and of the honest people; None: the record.
    serves
        How each kind of question is answered.
    example
        A promise for small instances in tests: ``epsilon`` and ``delta`` where they are needed.
    calibration
        What the calibration is called in terms. Devices take `TIGHT` alone, and services run nothing else.
    """

    name: str
    sees: str
    endpoint: Literal["server", "shuffler"]
    curated: bool
    promises: bool
    batched: bool
    delta_least: float
    reader: str
    assumes: tuple[str, ...]
    event: Callable[[Mechanism, int], Event | None]
    serves: Mapping[type[Question], Serving]
    example: Mapping[str, float]
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


def _local_means(privacy: Promise, _honest: int, question: KeyedMeans, _share: Allotment | None) -> AnyMechanism:
    return _symbol(privacy, 0, question, None)


def _symbol(privacy: Promise, honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Choose the symbol of the least noise: of a key's events, where they are expected to be rare, or a signed one."""
    promise = (privacy.bound, privacy.delta, honest, privacy.local_epsilon_max, share)
    signed = SignedSymbol.calibrated(question, *promise)
    if not EventSymbol.serves(question):
        return signed
    event = EventSymbol.calibrated(question, *promise)
    return event if event.variance(question) < signed.variance(question) else signed


def _local_vectors(privacy: Promise, _honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    """Choose the mechanism of the least error; randomized directions win unless delta is large (docs/vectors.md)."""
    if question.normal:
        return GaussianVectors.calibrated(question.ball, privacy.bound, privacy.delta)
    symbol = VectorSymbol.calibrated(question.ball, privacy.bound, question.seed, question.classes)
    if privacy.delta == 0:
        return symbol
    gaussian = GaussianVectors.calibrated(question.ball, privacy.bound, privacy.delta)
    return symbol if symbol.error < gaussian.error else gaussian


def _local_symbols(privacy: Promise, _honest: int, question: SecondMoments, _share: Allotment | None) -> AnyMechanism:
    return VectorSymbol.calibrated(question.ball, privacy.bound, question.seed, question.classes)


def _local_hits(privacy: Promise, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    return NamedSymbol.calibrated(question, privacy.bound)


def _shuffled_hits(privacy: Promise, honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    return NamedSymbol.amplified(question, privacy.bound, privacy.delta, honest, privacy.local_epsilon_max)


def _shuffled_means(privacy: Promise, honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    return _symbol(privacy, honest, question, share)


def _shuffled_names(privacy: Promise, honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Name the keys, unless they are too many for the local epsilons that the spec allows."""
    keys, limit = question.layout, privacy.local_epsilon_max
    if keys.groups > 1 or not NamedSymbol.names(keys.keys, limit):
        return _shuffled_means(privacy, honest, question, share)
    return NamedSymbol.amplified(_named(keys), privacy.bound, privacy.delta, honest, limit)


def _named(layout: Layout) -> KeyedHits:
    return KeyedHits(SlotLayout(layout.seed, layout.thresholds))


def _shuffled_vectors(privacy: Promise, honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    return BitVectors.calibrated(question.ball, privacy.bound, privacy.delta, honest)


def _shuffled_directions(privacy: Promise, honest: int, asked: L2VectorSum, share: Allotment | None) -> AnyMechanism:
    promise, limit, classes = (privacy.bound, privacy.delta), privacy.local_epsilon_max, asked.classes
    return VectorSymbol.amplified(asked.ball, promise, honest, limit, share, asked.seed, classes, asked.messages)


def _central_means(privacy: Promise, _honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Release pairs where counts are wanted and the promise is pure, or one report's alone; else sums.

    What an allotment of normal noise covers is a pure event of far more noise than that; and reports of one person must
    all keep the same allotment.
    """
    keys, pure = question.layout, share.pure if share else privacy.bound
    if question.counted and keys.groups == 1 and pure:
        return CellPairs.calibrated(KeyedHits(SlotLayout(keys.seed, keys.thresholds)), pure)
    return CentralSums.calibrated(question, privacy.bound, privacy.delta, share)


def _central_names(privacy: Promise, _honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Release pairs, which count people and rewards for a pure promise, unless normal sums have less noise."""
    pairs = CellPairs.calibrated(_named(question.layout), privacy.bound)
    sums = CentralSums.calibrated(question, privacy.bound, privacy.delta, share)
    return sums if not sums.scale and sums.standard_deviation**2 < 2 * pairs.noise else pairs


def _central_hits(privacy: Promise, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    return _cells(question).calibrated(question, privacy.bound)


def _exact_hits(_: Promise, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    return _cells(question)(question.layout)


def _cells(question: KeyedHits) -> type[CellPairs]:
    return CellPairs if question.expected is None else CellTriples


def _central_vectors(privacy: Promise, _honest: int, question: VectorSum, share: Allotment | None) -> AnyMechanism:
    if share:
        return CentralVectors(question.ball, share.standard_deviation * question.ball.diameter)
    if question.steps:
        return RunningVectors.running(question.ball, privacy.bound, privacy.delta, "root", question.steps)
    return CentralVectors.calibrated(question.ball, privacy.bound, privacy.delta)


def _central_moments(privacy: Promise, _honest: int, question: SecondMoments, _share: Allotment | None) -> AnyMechanism:
    return ScreenedMoments.calibrated(question, privacy.bound, privacy.delta)


def _exact_moments(_: Promise, _honest: int, question: SecondMoments, _share: Allotment | None) -> AnyMechanism:
    # Where nobody is asked the question may be one that no curator has.
    return ScreenedMoments.exact(question) if question.wanted else CentralVectors(question.ball, 0.0)


def _exact_vectors(_: Promise, _honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    return CentralVectors(question.ball, 0.0)


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
                KeyedMeans: Serving((SignedSymbol, EventSymbol), _local_means),
                SmallDomainMeans: Serving((SignedSymbol, EventSymbol), _local_means),
                KeyedHits: Serving((NamedSymbol,), _local_hits),
                VectorSum: Serving((VectorSymbol, GaussianVectors), _local_vectors),
                L2VectorSum: Serving((VectorSymbol, GaussianVectors), _local_vectors),
                SecondMoments: Serving((VectorSymbol,), _local_symbols),
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
                KeyedMeans: Serving((SignedSymbol, EventSymbol), _shuffled_means, shares_out=True),
                SmallDomainMeans: Serving((SignedSymbol, EventSymbol, NamedSymbol), _shuffled_names),
                KeyedHits: Serving((NamedSymbol,), _shuffled_hits),
                VectorSum: Serving((BitVectors,), _shuffled_vectors),
                L2VectorSum: Serving((VectorSymbol,), _shuffled_directions, shares_out=True),
                SecondMoments: Serving((BitVectors,), _shuffled_vectors),
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
                KeyedMeans: Serving((CentralSums, CellPairs), _central_means, shares_out=True),
                SmallDomainMeans: Serving((CentralSums, CellPairs), _central_names),
                KeyedHits: Serving((CellPairs, CellTriples), _central_hits),
                VectorSum: Serving((CentralVectors, RunningVectors), _central_vectors),
                L2VectorSum: Serving((CentralVectors, RunningVectors), _central_vectors, shares_out=True),
                SecondMoments: Serving((ScreenedMoments,), _central_moments),
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
                KeyedMeans: Serving((CentralSums,), lambda _p, _h, question, _s: CentralSums(question.layout)),
                SmallDomainMeans: Serving((CentralSums,), lambda _p, _h, question, _s: CentralSums(question.layout)),
                KeyedHits: Serving((CellPairs, CellTriples), _exact_hits),
                VectorSum: Serving((CentralVectors,), _exact_vectors),
                L2VectorSum: Serving((CentralVectors,), _exact_vectors),
                SecondMoments: Serving((ScreenedMoments,), _exact_moments),
            },
            example={},
        ),
    )
}


def trust_of(model: str) -> Trust:
    """Return the row of a trust model.

    Raises
    ------
    SpecError
        If there is no such model.
    """
    if model not in TRUST:
        raise SpecError(f"must be one of {', '.join(TRUST)}", field="privacy.model", remedy="choose one")
    return TRUST[model]


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


def check_promise(privacy: Promise, question: type[Question]) -> None:
    """Refuse a promise that the trust model's mechanisms for this kind of question cannot make.

    Raises
    ------
    SpecError
        Naming the field of ``privacy``.
    """
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
        raise _refused("local_epsilon_max", "must be at least epsilon", "raise it")
    if privacy.min_batch < BATCH_MIN:
        raise _refused("min_batch", f"must be at least {BATCH_MIN}", "raise it; 1000 is usual")
    if privacy.honest_fraction * privacy.min_batch < 1:
        raise _refused("honest_fraction", "must leave at least one report of min_batch", "raise it")


def _refused(field: str, detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field=f"privacy.{field}", remedy=remedy)
