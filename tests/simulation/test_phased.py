"""Paper 5's instance, Section 7, in one process; numbers measured are in docs/phased.md."""

import pytest

from privateer_lab.phased import figures
from privateer_lab.phased.figures import curves, fixed_clients, regrets, section_7, table_1, verdicts
from privateer_lab.phased.simulation import simulate, simulate_once, summary
from tests.support.phased import TRUST, phased_spec

TARGETS = {
    ("none", 1.0): 25_000,
    ("central", 1.0): 160_000,
    ("central", 5.0): 73_000,
    ("central", 10.0): 54_000,
    ("central", 15.0): 45_000,
    ("shuffle", 1.0): 165_000,
    ("shuffle", 5.0): 77_000,
    ("shuffle", 10.0): 58_000,
    ("shuffle", 15.0): 45_000,
}


def outcome(model, calibration="tight", epsilon=10.0, delta=0.25, seeds=3, **changes):
    spec = section_7(model, calibration, epsilon, delta, changes)
    return summary(spec, list(simulate(spec, seeds, 1)), 0.0)


@pytest.mark.parametrize(("model", "epsilon"), TARGETS, ids=str)
def test_regret_of_section_7(model, epsilon):
    found = outcome(model, epsilon=epsilon)
    assert found["regret_mean"] <= TARGETS[model, epsilon]
    assert found["best_action_kept"] == 1.0
    assert found["bits_mean"] <= 2e7
    assert found["holds"] is (None if model == "none" else True)


def test_shuffle_is_central_and_local_is_far_above():
    rows = {model: outcome(model)["regret_mean"] for model in ("central", "shuffle", "local")}
    assert 0.8 * rows["central"] <= rows["shuffle"] <= 1.2 * rows["central"]
    assert rows["local"] >= 4 * rows["shuffle"]


@pytest.mark.nightly
@pytest.mark.parametrize("epsilon", [1.0, 5.0, 10.0, 15.0])
def test_shuffle_is_within_a_tenth_of_central(epsilon):
    central, shuffle = (outcome(model, epsilon=epsilon, seeds=40)["regret_mean"] for model in ("central", "shuffle"))
    assert shuffle <= 1.10 * central


def test_published_calibrations():
    """The paper's shuffled bits do not learn; its normal noise does, and does not keep its promise."""
    central, shuffle = (outcome(model, "published") for model in ("central", "shuffle"))
    assert central["true_delta"] == pytest.approx(0.789, abs=0.001)
    assert not central["holds"]
    assert 280_000 <= central["regret_mean"] <= 430_000
    assert shuffle["regret_mean"] > 0.95 * shuffle["uniform_regret"]
    assert shuffle["true_delta"] < 1e-6
    assert shuffle["bits_mean"] > 1e8


def test_a_delta_that_protects_nobody_is_warned_of():
    assert any("protects nobody" in told for told in outcome("central")["warnings"])
    honest = outcome("central", delta=1e-6)
    assert honest["warnings"] == []
    assert honest["true_delta"] <= 1e-6
    assert any("does not keep" in told for told in outcome("local", "published")["warnings"])


def test_signals_beyond_the_range_are_warned_of():
    changes = {"population.scale": 6.0, "experiment.people": 20_000, "algorithm.clients": 10.0}
    spec = phased_spec(changes, "central")
    found = summary(spec, list(simulate(spec, 3, 1)), 0.0)
    assert found["clipped_share"] > 0.1
    assert any("widen reward.low" in told for told in found["warnings"])


@pytest.mark.parametrize("trust", TRUST)
def test_a_seed_is_a_run(trust):
    spec = phased_spec(trust=trust)
    assert simulate_once(spec, 4) == simulate_once(spec, 4)
    assert simulate_once(spec, 4)[0].regret != simulate_once(spec, 5)[0].regret


def test_runs_on_processes_are_the_same():
    spec = phased_spec(trust="shuffle")
    alone, shared = (sorted(simulate(spec, 4, jobs), key=lambda done: done[0].seed) for jobs in (1, 2))
    assert alone == shared


def test_growing_phases_learn_faster_than_equal_ones():
    """Figure 2(c): the same numbers sent, and at the end at least twice the regret."""
    rows = list(fixed_clients(2, 1))
    by = {name: [row for row in rows if row["algorithm"] == name] for name in {row["algorithm"] for row in rows}}
    growing, fixed = by.pop("DPE"), by.popitem()[1]
    assert fixed[-1]["per_round_regret"] > 2 * growing[-1]["per_round_regret"]
    assert fixed[0]["numbers_sent"] == pytest.approx(growing[0]["numbers_sent"], rel=0.15)


def test_rows_of_the_figures(monkeypatch):
    monkeypatch.setattr(figures, "EPSILONS", (10.0,))
    rows = list(regrets(2, 0.25, (10.0,), 1))
    assert [(row["model"], row["calibration"]) for row in rows] == list(figures.VARIANTS)
    (tight, published) = verdicts(rows)
    assert tight["shuffle_over_central"] < 1.3
    assert tight["private"]
    assert published["shuffle_over_uniform"] > 0.95
    assert not published["private"]
    assert {row["delta"] for row in table_1(1, 1)} == {None, 0.25, 1e-6}


def test_curves_end_at_the_final_regret():
    rows = [row for row in curves(2, jobs=1) if row["model"] == "none"]
    runs = [run for run, _ in simulate(section_7("none", "tight", 1.0, 0.0), 2, 1)]
    assert rows[-1]["time"] == 1_000_000
    assert rows[-1]["per_round_regret"] == pytest.approx(sum(run.regret for run in runs) / 2e6)
    assert all(row["standard_deviation"] >= 0 for row in rows)
    assert rows[0]["per_round_regret"] > 5 * rows[-1]["per_round_regret"]
