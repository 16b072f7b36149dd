"""Mechanisms: one file each, with the randomizer of devices and the analyzer of the server side by side."""

from typing import Final, TypeAlias

from privateer.mechanisms.base import Mechanism
from privateer.mechanisms.cell_pairs import CellPairs
from privateer.mechanisms.central_sums import CentralSums
from privateer.mechanisms.laplace_cells import LaplaceCells
from privateer.mechanisms.named_symbol import NamedSymbol
from privateer.mechanisms.running_vectors import RunningVectors
from privateer.mechanisms.screened_moments import ScreenedMoments
from privateer.mechanisms.signed_symbol import SignedSymbol
from privateer.mechanisms.vector_bits import BitVectors
from privateer.mechanisms.vector_noise import CentralVectors, GaussianVectors
from privateer.mechanisms.vector_symbol import VectorSymbol

KeyedMechanism: TypeAlias = SignedSymbol | LaplaceCells | CentralSums
HitsMechanism: TypeAlias = NamedSymbol | CellPairs
VectorMechanism: TypeAlias = VectorSymbol | GaussianVectors | CentralVectors | RunningVectors | BitVectors
AnyMechanism: TypeAlias = KeyedMechanism | HitsMechanism | VectorMechanism | ScreenedMoments
MECHANISMS: Final[tuple[type[Mechanism], ...]] = (
    SignedSymbol,
    LaplaceCells,
    CentralSums,
    NamedSymbol,
    CellPairs,
    VectorSymbol,
    GaussianVectors,
    CentralVectors,
    RunningVectors,
    BitVectors,
    ScreenedMoments,
)
"""Every mechanism that a spec can choose."""

__all__ = [
    "MECHANISMS",
    "AnyMechanism",
    "HitsMechanism",
    "KeyedMechanism",
    "Mechanism",
    "ScreenedMoments",
    "VectorMechanism",
]
