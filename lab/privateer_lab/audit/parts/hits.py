"""Parts of the mechanisms of hits: symbols, and the two sums of a pair."""

import numpy as np

from privateer_core.mechanisms.cell_pairs import UNIT, CellPairs
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_lab.audit.law import LaplaceLaw
from privateer_lab.audit.parts.keyed import COIN, symbol_part
from privateer_lab.audit.parts.part import Integers, MechanismPart, Noise, noise_part
from privateer_lab.audit.views import model_of, releases

_COUNT = 4_000


def hit_parts() -> list[MechanismPart]:
    """Return the parts of all mechanisms of hits."""
    layout = SlotLayout.small()
    return [
        symbol_part("a symbol of one's key", NamedSymbol(layout, 2.0, 4), ((0, 1.0), (1, 1.0))),
        symbol_part("a symbol of one's bucket", NamedSymbol(layout, 2.0, 2), ((0, 1.0), (0, 0.0))),
        symbol_part("the symbol of people without a key", NamedSymbol(layout, 1.0, 1), ((0, 1.0), (-1, 0.0))),
        _pair_part("sums of values", 0),
        _pair_part("sums of the rest", 1),
    ]


def _pair_part(name: str, own: int) -> MechanismPart:
    """Many people stand in one release, each with a key of their own."""
    mechanism = CellPairs(_keys(1), 0.5)

    def observe(who: int, count: int) -> Integers:
        wide = CellPairs(_keys(count), mechanism.scale)
        coins, none = np.full(count, COIN, np.uint32), np.zeros(count, np.int64)
        made = KeyedValues(coins, np.arange(count), none, np.full(count, 1.0 - who))
        release = wide.release(wide.add(wide.empty(), wide.randomize(made, SecureNoise())), SecureNoise())
        numbers = np.concatenate([release.positive, release.hits - release.positive], axis=1)
        return np.asarray(np.rint(UNIT * numbers), np.int64)

    law = LaplaceLaw(DiscreteLaplace.at_least(mechanism.scale * UNIT).scale)
    noise = Noise((law, law), (own,), UNIT * np.array([[1, 0], [0, 1]]))
    return noise_part(name, mechanism, model_of(releases), "DiscreteLaplace.draw", observe, noise, _COUNT)


def _keys(count: int) -> SlotLayout:
    return SlotLayout.ungrouped(count, 5)
