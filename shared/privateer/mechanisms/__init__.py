"""Privatizers: one file a mechanism, randomizer and analyzer side by side."""

from privateer.coins import Layout
from privateer.mechanisms.central_sums import CentralSums
from privateer.mechanisms.laplace_cells import LaplaceCells
from privateer.mechanisms.signed_symbol import SignedSymbol
from privateer.terms import Terms


def mechanism_for(layout: Layout, terms: Terms) -> SignedSymbol | LaplaceCells | CentralSums:
    """The mechanism that a round's terms name."""
    if terms.mechanism in ("gaussian", "none"):
        return CentralSums(layout, terms.standard_deviation)
    if terms.mechanism == "laplace":
        return LaplaceCells(layout, terms.local_epsilon)
    return SignedSymbol(layout, terms.local_epsilon, terms.buckets, terms.elsewhere)
