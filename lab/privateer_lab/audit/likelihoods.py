"""Likelihoods of reports, given what their participants hold."""

import math
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.tiered_symbol import TieredSymbol
from privateer_core.mechanisms.vectors.vector_noise import GaussianVectors
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import hash_to_bucket, hash_to_sign
from privateer_lab.audit.law import Scores


@singledispatch
def log_likelihood(mechanism: Any, contribution: Any, rows: NDArray[Any]) -> Scores:
    """Return each report's log-likelihood, (n,), up to a constant, given its contribution with the same coins."""
    del contribution, rows
    raise TypeError(f"no likelihood of a report of {type(mechanism).__name__}")


@log_likelihood.register
def _vector_likelihood(mechanism: VectorSymbol, contribution: BoundedVectors, rows: NDArray[Any]) -> Scores:
    is_own_symbol = (mechanism.own_symbols(contribution) == rows["symbol"].astype(np.int64)[:, None]).any(axis=1)
    return np.asarray(mechanism.epsilon * is_own_symbol)


@log_likelihood.register
def _normal_likelihood(mechanism: GaussianVectors, contribution: BoundedVectors, rows: NDArray[Any]) -> Scores:
    errors = rows - mechanism.ball.clip(contribution.values) / mechanism.ball.step
    return np.asarray(-np.square(errors).sum(axis=1) / (2 * mechanism.standard_deviation**2))


@log_likelihood.register
def _symbol_likelihood(mechanism: SignedSymbol, contribution: KeyedValues, rows: NDArray[Any]) -> Scores:
    """Compute the log-likelihood of each row's symbol, given what a contributor holds."""
    symbols: NDArray[np.uint16] = rows["symbol"]
    response, has_key = mechanism.response, contribution.keys >= 0
    hashes = mechanism.layout.hashes(contribution.coins, np.maximum(contribution.keys, 0))
    own_symbols = 2 * hash_to_bucket(hashes, mechanism.buckets) + (
        (2 * contribution.values - 1) * hash_to_sign(hashes) > 0
    )
    truth = np.where(has_key, own_symbols, 2 * mechanism.buckets)
    log_probabilities = np.where(symbols == truth, math.log(response.truth), math.log(response.other))
    return np.where(has_key | mechanism.elsewhere, log_probabilities, -math.log(response.symbols))


@log_likelihood.register
def _tier_likelihood(mechanism: TieredSymbol, contribution: KeyedValues, rows: NDArray[Any]) -> Scores:
    """Compute the log-likelihood of each row's symbol within the alphabet of the participant's tier."""
    own_rows = rows.copy()
    own_rows["symbol"] -= np.uint16(mechanism.first_symbols[mechanism.tier])
    return _symbol_likelihood(mechanism.tier_symbols[mechanism.tier], contribution, own_rows)


@log_likelihood.register
def _event_likelihood(mechanism: EventSymbol, contribution: KeyedValues, rows: NDArray[Any]) -> Scores:
    is_event_report = (contribution.values > 0) | mechanism.is_key_report(contribution.coins)
    truth = np.where((contribution.keys >= 0) & is_event_report, contribution.keys + 1, 0)
    return np.where(rows["symbol"] == truth, math.log(mechanism.response.truth), math.log(mechanism.response.other))


@log_likelihood.register
def _named_likelihood(mechanism: NamedSymbol, contribution: KeyedValues, rows: NDArray[Any]) -> Scores:
    """Compute the log-likelihood of each row's symbol, which names a key and a level."""
    symbols: NDArray[np.uint16] = rows["symbol"]
    levels = np.where(contribution.values > 0, mechanism.levels - 1, 0)
    response, truth = mechanism.response, mechanism.true_symbols(contribution, levels)
    log_probabilities = np.where(symbols == truth, math.log(response.truth), math.log(response.other))
    return np.where(truth >= 0, log_probabilities, -math.log(response.symbols))


@log_likelihood.register
def _grouped_likelihood(mechanism: GroupedBit, contribution: KeyedValues, rows: NDArray[Any]) -> Scores:
    """Compute the log-likelihood of each row's bit, with the epsilon of the coin's group."""
    local = np.array(mechanism.epsilons)[mechanism.coin_groups(contribution.coins)]
    is_true = rows["symbol"] == np.where(contribution.keys < 0, -1, contribution.values > 0)
    # Participants without a value send either bit with the same probability.
    return np.where(contribution.keys < 0, -math.log(2), np.where(is_true, local, 0.0) - np.log1p(np.exp(local)))
