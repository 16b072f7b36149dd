"""People whose mean rewards are sums of shape functions."""

from pathlib import Path

import numpy as np

from privateer_core.algorithms import read_spec
from privateer_lab.environments import environment_for

EXAMPLE = Path(__file__).parents[4] / "examples" / "additive-shuffle.toml"


def people(height="0.25"):
    spec = read_spec(EXAMPLE.read_text().replace("height = 0.25", f"height = {height}"))
    environment = environment_for(spec, 0)
    return environment, environment.contexts(0, 400, np.random.default_rng(1))


def test_effects_of_a_feature_do_not_depend_on_other_features():
    """Planted: a product of two features. At a small height no sum is beyond the bounds of rewards."""
    environment, contexts = people("0.02")
    changed, elsewhere = contexts.copy(), contexts[::-1].copy()
    changed[:, 0] = 40.0
    both_changed = elsewhere.copy()
    both_changed[:, 0], elsewhere[:, 0] = 40.0, contexts[:, 0]
    effect = environment.means(changed) - environment.means(contexts)
    effect_elsewhere = environment.means(both_changed) - environment.means(elsewhere)
    assert np.allclose(effect, effect_elsewhere)
    assert np.abs(effect).max() > 0.005
    product = effect * (1 + 0.1 * contexts[:, 3:4] / 40) - effect_elsewhere * (1 + 0.1 * elsewhere[:, 3:4] / 40)
    assert not np.allclose(product, 0)


def test_means_are_within_bounds_the_same_in_every_run_and_about_as_high_as_asked():
    environment, contexts = people()
    repeated, _ = people()
    means = environment.means(contexts)
    assert means.shape == (400, 4)
    assert (means == repeated.means(contexts)).all()
    assert ((means >= 0) & (means <= 1)).all()
    assert 0.1 < means.std() < 0.4
    assert np.isnan(contexts[:, 2]).any()
