"""Mechanisms: one file each, with the randomizer of devices and the analyzer of the server side by side."""

from typing import Final, TypeAlias, get_args

from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.mechanism import Mechanism
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

KeyedMechanism: TypeAlias = SignedSymbol | TieredSymbol | EventSymbol | CentralSums | SharedSums
HitsMechanism: TypeAlias = (
    NamedSymbol | CellPairs | CellTriples | CellProducts | SharedPairs | SharedTriples | SharedProducts
)
VectorMechanism: TypeAlias = VectorSymbol | GaussianVectors | CentralVectors | BitVectors
RowMechanism: TypeAlias = RowSums | RunningVectors
AnyMechanism: TypeAlias = (
    KeyedMechanism | GroupedBit | HitsMechanism | FeatureSums | VectorMechanism | RowMechanism | ScreenedMoments
)
MECHANISMS: Final[tuple[type[Mechanism], ...]] = get_args(AnyMechanism)
"""Every mechanism that a spec can choose."""

__all__ = [
    "MECHANISMS",
    "AnyMechanism",
    "FeatureSums",
    "GroupedBit",
    "HitsMechanism",
    "KeyedMechanism",
    "Mechanism",
    "RowMechanism",
    "RowSums",
    "ScreenedMoments",
    "VectorMechanism",
]
