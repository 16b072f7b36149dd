"""The mechanisms of an experiment's rounds, by name and in words."""

from typing import Final

from privateer_core.record import Record

_IN_WORDS: Final = {
    "signed-symbol": "the device's randomized response over symbols that hide group, arm and reward bit",
    "named-symbol": "the device's randomized response over symbols that name the group and the answer",
    "vector-symbol": "the device's randomized response over directions, for a bounded vector",
    "gaussian-vectors": "normal noise that the device adds to a bounded vector",
    "bit-vectors": "random bits that the device sends beside those of a bounded vector, coordinate by coordinate",
    "laplace-cells": "Laplace noise that the device adds to every cell",
    "central-sums": "sums of records, with a curator's noise of one scale",
    "cell-pairs": "counts of yes and of no, each with a curator's discrete Laplace noise",
    "central-vectors": "sums of bounded vectors, with a curator's normal noise",
    "running-vectors": "sums of vectors, with a curator's normal noise that depends on that of earlier releases",
    "screened-moments": "features that a curator chooses privately, and their second moments with normal noise",
}
"""What makes a release private, by the mechanism's type; docs/privacy.md and docs/vectors.md have claims and proofs."""


def mechanisms_of(record: Record, *, promises: bool) -> str:
    """Name the mechanisms of all rounds, those of sources included, or those that are planned ahead of them."""
    cohorts = (record, *record.sources)
    rows = [row for one in cohorts for row in (*one.rounds, one.planned) if row is not None]
    types = dict.fromkeys(str(row.mechanism["type"]) for row in rows)
    without = "" if promises else "; under this trust model that noise is 0, and nothing is promised"
    return "; ".join(f"{name}: {_IN_WORDS.get(name, 'see docs/privacy.md')}" for name in types) + without
