"""Which local mechanism for vectors: the one of the least error at a promise and a dimension."""

from privateer.mechanisms.vector_gaussian import GaussianVectors, vector_standard_deviation
from privateer.mechanisms.vector_symbol import VectorSymbol, symbol_vectors
from privateer.vectors import Ball


def local_vectors(ball: Ball, epsilon: float, delta: float, seed: int) -> GaussianVectors | VectorSymbol:
    """The mechanism of the least mean squared error for (epsilon, delta) under the local model.

    Randomized directions are pure (they use no delta), and win unless delta is large (docs/vectors.md has the table).

    Raises
    ------
    SpecError
        If the promise is out of the certified range.
    """
    symbol = symbol_vectors(ball, epsilon, seed)
    if delta == 0:
        return symbol
    gaussian = GaussianVectors(ball, vector_standard_deviation(ball, epsilon, delta))
    error = ball.coordinates * (gaussian.standard_deviation * ball.step) ** 2
    return symbol if symbol.error < error else gaussian
