"""The rules fire on what services show, and only then: planted pages, without a service."""

import pytest

from tests.operations.alert_history import CALM, CURED, LASTING, Phase, Scrape, find_alerts, promtool

pytestmark = pytest.mark.skipif(not promtool(), reason="promtool is not on this machine")
_PAGE = """# TYPE privateer_intake_up gauge
privateer_intake_up {counting}
# TYPE privateer_shuffler_forwarding_failures_total counter
privateer_shuffler_forwarding_failures_total {failures}
# TYPE privateer_shuffler_full_batch_timestamp_seconds gauge
privateer_shuffler_full_batch_timestamp_seconds {full}
"""


def phase(start: int, minutes: int, counting: int = 1, failures: int = 0, full: int = 0, up: int = 1) -> Phase:
    """Ten seconds of pages; failures go on, as many a second."""
    pages = [_PAGE.format(counting=counting, failures=failures * second, full=full) for second in range(10)]
    return Phase([Scrape(start + at, {"server": page if up else None}) for at, page in enumerate(pages)], minutes)


@pytest.mark.parametrize(
    ("minutes", "fault", "alerts"),
    [
        (LASTING, {"counting": 0}, {"PrivateerNotCounting": 1}),
        pytest.param(LASTING, {}, {}, marks=pytest.mark.nightly),
        pytest.param(LASTING, {"up": 0}, {"PrivateerDown": 2}, marks=pytest.mark.nightly),
        pytest.param(LASTING, {"failures": 1}, {"PrivateerShufflerCannotDeliver": 6}, marks=pytest.mark.nightly),
        pytest.param(LASTING, {"full": 1_700_000_000}, {"PrivateerShufflerBatchWaits": 120}, marks=pytest.mark.nightly),
        pytest.param(0, {"counting": 0}, {}, marks=pytest.mark.nightly),
    ],
)
def test_planted_faults_fire_their_rule_and_clear(minutes, fault, alerts, tmp_path):
    phases = phase(1_699_999_900, CALM), phase(1_700_000_000, minutes, **fault), phase(1_700_000_100, CURED)
    alerts_fired = find_alerts(phases, tmp_path)
    assert (alerts_fired.before, alerts_fired.after) == (set(), set())
    assert alerts_fired.during == {name: pytest.approx(after, abs=2) for name, after in alerts.items()}
