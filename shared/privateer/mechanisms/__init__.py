"""Mechanisms: one file each, with the randomizer of devices and the analyzer of the server side by side."""

from typing import Final, TypeAlias

from privateer.mechanisms.base import Mechanism
from privateer.mechanisms.cell_pairs import CellPairs
from privateer.mechanisms.central_sums import CentralSums
from privateer.mechanisms.laplace_cells import LaplaceCells
from privateer.mechanisms.named_symbol import NamedSymbol
from privateer.mechanisms.signed_symbol import SignedSymbol
from privateer.mechanisms.vector_bits import BitVectors
from privateer.mechanisms.vector_noise import CentralVectors, GaussianVectors
from privateer.mechanisms.vector_symbol import VectorSymbol

KeyedMechanism: TypeAlias = SignedSymbol | LaplaceCells | CentralSums
HitsMechanism: TypeAlias = NamedSymbol | CellPairs
VectorMechanism: TypeAlias = VectorSymbol | GaussianVectors | CentralVectors | BitVectors
AnyMechanism: TypeAlias = KeyedMechanism | HitsMechanism | VectorMechanism
MECHANISMS: Final[tuple[type[Mechanism], ...]] = (
    SignedSymbol,
    LaplaceCells,
    CentralSums,
    NamedSymbol,
    CellPairs,
    VectorSymbol,
    GaussianVectors,
    CentralVectors,
    BitVectors,
)
"""Every mechanism that a spec can choose."""

__all__ = ["MECHANISMS", "AnyMechanism", "HitsMechanism", "KeyedMechanism", "Mechanism", "VectorMechanism"]
