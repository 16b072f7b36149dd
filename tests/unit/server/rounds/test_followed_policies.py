"""Which policies a round's reports are about, from the law of delays."""

import numpy as np
import pytest

from privateer_lab.environments.environment import Delay
from privateer_server.rounds.succession import shares_by_policy

OPENED = [0.0, 100.0, 200.0, 300.0]


@pytest.mark.parametrize(
    ("mean", "opens", "closes", "expected"),
    [
        (0.0, 300.0, 400.0, [0, 0, 0, 1]),
        (100.0, 300.0, 400.0, [0, 0, 1, 0]),
        (150.0, 300.0, 400.0, [0, 0.5, 0.5, 0]),
        (50.0, 300.0, 500.0, [0, 0, 0.25, 0.75]),
    ],
)
def test_policy_shares_of_fixed_delays(mean: float, opens: float, closes: float, expected: list[float]) -> None:
    shares = shares_by_policy(OPENED, opens, closes, Delay(law="fixed", mean=mean).cumulative_probability)
    assert shares == pytest.approx(expected, abs=0.07)


@pytest.mark.parametrize("law", ["exponential", "heavy-tailed"])
def test_policy_shares_match_simulated_delays(law: str) -> None:
    """A million people; standard errors are below .002."""
    rng, delay = np.random.default_rng(5), Delay(law=law, mean=120.0)
    chose = rng.uniform(0, 400, 1_000_000)
    reports = chose + delay.draw(len(chose), rng)
    during = (reports > 300) & (reports <= 400)
    versions = np.searchsorted(OPENED, chose[during], side="right") - 1
    shares = np.bincount(versions, minlength=4) / during.sum()
    assert shares_by_policy(OPENED, 300.0, 400.0, delay.cumulative_probability) == pytest.approx(shares, abs=0.02)


def test_policies_after_the_end_have_no_share() -> None:
    delay = Delay(law="exponential", mean=100.0)
    shares = shares_by_policy(OPENED, 300.0, 400.0, delay.cumulative_probability, last_choice=200.0)
    assert (shares[2:] == 0).all()
    assert shares.sum() == pytest.approx(1)


def test_reports_before_anybody_can_have_reported_are_about_the_rounds_own_policy() -> None:
    delay = Delay(law="fixed", mean=1000.0)
    assert shares_by_policy(OPENED, 300.0, 400.0, delay.cumulative_probability).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("law", ["fixed", "exponential", "heavy-tailed"])
def test_delay_distributions_have_their_means(law: str) -> None:
    delay = Delay(law=law, mean=50.0)
    assert delay.draw(1_000_000, np.random.default_rng(1)).mean() == pytest.approx(50, rel=0.03)
    times = np.array([-1.0, 0.0, 10.0, 49.0, 51.0, 1e9])
    probabilities = delay.cumulative_probability(times)
    assert (probabilities[:1] == 0).all()
    assert (np.diff(probabilities) >= 0).all()
    assert probabilities[-1] == pytest.approx(1)
