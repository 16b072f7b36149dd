"""People whose mean rewards are sums of shape functions."""

from pathlib import Path

import numpy as np

from privateer_core.algorithms import read_spec
from privateer_lab.environments import environment_for

EXAMPLE = Path(__file__).parents[4] / "examples" / "additive-shuffle.toml"


def people(height="0.25"):
    spec = read_spec(EXAMPLE.read_text().replace("height = 0.25", f"height = {height}"))
    made = environment_for(spec, 0)
    return made, made.contexts(0, 400, np.random.default_rng(1))


def test_what_one_feature_does_no_other_one_changes():
    """Planted: a product of two features. At a small height no sum is beyond the bounds of rewards."""
    made, contexts = people("0.02")
    changed, elsewhere = contexts.copy(), contexts[::-1].copy()
    changed[:, 0] = 40.0
    both = elsewhere.copy()
    both[:, 0], elsewhere[:, 0] = 40.0, contexts[:, 0]
    here, there = (made.means(one) - made.means(other) for one, other in ((changed, contexts), (both, elsewhere)))
    assert np.allclose(here, there)
    assert np.abs(here).max() > 0.005
    product = here * (1 + 0.1 * contexts[:, 3:4] / 40) - there * (1 + 0.1 * elsewhere[:, 3:4] / 40)
    assert not np.allclose(product, 0)


def test_means_are_within_bounds_the_same_in_every_run_and_about_as_high_as_asked():
    made, contexts = people()
    again, _ = people()
    means = made.means(contexts)
    assert means.shape == (400, 4)
    assert (means == again.means(contexts)).all()
    assert ((means >= 0) & (means <= 1)).all()
    assert 0.1 < means.std() < 0.4
    assert np.isnan(contexts[:, 2]).any()
