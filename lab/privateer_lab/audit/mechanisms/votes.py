"""Attacks on votes in shares of two servers, and on the noise of each server."""

from typing import Any, Final

import msgspec
import numpy as np

from privateer_core.mechanisms.server_noise import STEPS
from privateer_core.mechanisms.shared_votes import SharedPairs, SharedProducts, SharedSums, SharedTriples, SharedVotes
from privateer_core.primitives.public_coins import Layout, SlotLayout
from privateer_core.primitives.questions import KeyedHits, KeyedMeans
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit import views
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, build_part
from privateer_lab.audit.law import LaplaceLaw, Law, NormalLaw
from privateer_lab.audit.mechanisms import keyed

_DELTA: Final = 1e-6
_HITS: Final = KeyedHits(SlotLayout.ungrouped(4, 5))
_ONE_KEY: Final = Layout.ungrouped(1, 5)
_PARTS: Final[dict[str, SharedVotes]] = {
    "normal noise of a server": SharedSums(_ONE_KEY, 0.7),
    "Laplace noise of a server": SharedSums(_ONE_KEY, 0.0, 1.0),
    "noise of a server, bits": SharedPairs(_ONE_KEY, 1.0),
    "noise of a server, numbers": SharedTriples(_ONE_KEY, 1.0),
    "noise of a server, products": SharedProducts(_ONE_KEY, 1.0),
}


def vote_cases(samples: int) -> list[Case]:
    """Build attacks of one server on the release of two."""
    sums = [(SharedSums.calibrated(KeyedMeans(keyed.LAYOUT), 1.0, delta), delta) for delta in (_DELTA, 0.0)]
    hits = [(kind.calibrated(_HITS, 1.0), 0.0) for kind in (SharedPairs, SharedTriples, SharedProducts)]
    cases = []
    for mechanism, delta in [*sums, *hits]:
        noise, count = ("normal", 3 * samples) if delta else ("Laplace", samples // 2)
        name = f"shares with {noise} noise"
        cases += keyed.build_pair_cases(name, views.attack_shares, mechanism, (1.0, delta), count)
    return cases


def vote_parts() -> list[MechanismPart]:
    """Return the noise of a server as a part, for each kind of vote."""
    return [_noise_part(name, mechanism) for name, mechanism in _PARTS.items()]


def _noise_part(name: str, mechanism: SharedVotes) -> MechanismPart:
    """Return the noisy cells of a server's share as a part; neighbours have opposite values."""
    exact = np.stack([_count_votes(mechanism, neighbour, 1)[0] for neighbour in (0, 1)])

    def observe(neighbour: int, count: int) -> Integers:
        return views.add_servers_noise(mechanism, _count_votes(mechanism, neighbour, count))

    noise = mechanism.server_noise
    scale = DiscreteLaplace.from_min_scale(noise.scale * STEPS).scale if noise.scale else 0
    law: Law = LaplaceLaw(scale) if scale else NormalLaw(noise.standard_deviation * STEPS)
    n_cells = exact.shape[1]
    part = Noise((law,) * n_cells, tuple(range(n_cells)), exact * (STEPS // mechanism.unit))
    sampler = "DiscreteLaplace.draw" if scale else "RoundedNormal.draw"
    return build_part(name, mechanism, views.model_for(views.attack_shares), sampler, observe, part, keyed.N_SUMS)


def _count_votes(mechanism: SharedVotes, neighbour: int, count: int) -> Integers:
    """Return the votes of ``count`` participants with the same value, in units, (count, cells)."""
    people = keyed.contribute_alike(mechanism.layout, keyed.OPPOSITE_REWARDS[neighbour], count)
    people = msgspec.structs.replace(people, keys=np.arange(count), numbers=np.full(count, 1.0 - neighbour))
    wide: Any = msgspec.structs.replace(mechanism, layout=Layout.ungrouped(count, 5))
    cells = wide.add(wide.empty(), wide.randomize(people, SecureNoise())).cells
    return np.asarray(cells.reshape(mechanism.n_parts, count).T)
