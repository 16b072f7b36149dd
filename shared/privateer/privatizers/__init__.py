"""Privatizers: one file a mechanism, randomizer and analyzer side by side."""

from privateer.privacy.terms import Terms
from privateer.privatizers.curated import CuratedSums
from privateer.privatizers.laplace import LaplaceCells
from privateer.privatizers.signed_symbol import SignedSymbol
from privateer.slots import Layout


def privatizer_for(layout: Layout, terms: Terms) -> SignedSymbol | LaplaceCells | CuratedSums:
    """The privatizer that a round's terms name."""
    if terms.mechanism in ("gaussian", "none"):
        return CuratedSums(layout, terms.deviation)
    if terms.mechanism == "laplace":
        return LaplaceCells(layout, terms.local_epsilon)
    return SignedSymbol(layout, terms.local_epsilon, terms.buckets, terms.elsewhere)
