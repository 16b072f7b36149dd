"""One rule admits experiments: it refuses right above each limit, names all refusals, and its remedies work."""

import re

import msgspec
import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.admission import ExperimentSize, RoundSize, ServerLimits, ShufflerLimits, raise_refusals

LARGEST = RoundSize(n_participants=1000, messages=10, sealed_size=70)
SHUFFLED = ExperimentSize(200, [RoundSize(200, 10, 70), LARGEST], is_shuffled=True)
DIRECT = SHUFFLED._replace(is_shuffled=False)
LIMITS = [
    (SHUFFLED, "batch_bytes_max", LARGEST.request_bytes(1000), "experiment.round_size", "PRIVATEER_BATCH_BYTES_MAX"),
    (DIRECT, "report_bytes_max", LARGEST.request_bytes(1), "privacy.epsilon", "PRIVATEER_REPORT_BYTES_MAX"),
    (SHUFFLED, "body_limit", LARGEST.request_bytes(1), "privacy.epsilon", "PRIVATEER_BODY_LIMIT"),
    (SHUFFLED, "messages_max", 10_000, "experiment.round_size", ""),
]


def find_refusals(size: ExperimentSize, **limits: int) -> list[SpecError]:
    """Return refusals by services with the shipped limits, but for some; shared limits are the server's here."""
    server, shuffler = ServerLimits(), ShufflerLimits()
    for name, limit in limits.items():
        if hasattr(server, name):
            server = msgspec.structs.replace(server, **{name: limit})
        else:
            shuffler = msgspec.structs.replace(shuffler, **{name: limit})
    return size.find_refusals(server, shuffler)


@pytest.mark.parametrize(("size", "limit", "required", "field", "setting"), LIMITS)
def test_the_required_limit_is_accepted_and_one_less_refused(
    size: ExperimentSize, limit: str, required: int, field: str, setting: str
) -> None:
    assert find_refusals(size, **{limit: required}) == []
    (refusal,) = find_refusals(size, **{limit: required - 1})
    assert refusal.field == field
    assert setting in refusal.detail
    assert f"{setting}={required}" in str(refusal.remedy) or not setting
    assert str(required - 1) in refusal.detail.replace(",", "")


def test_a_floor_takes_the_smallest_round_or_refuses_it() -> None:
    assert find_refusals(SHUFFLED, min_batch=200) == []
    (refusal,) = find_refusals(SHUFFLED, min_batch=201)
    assert (refusal.field, "PRIVATEER_MIN_BATCH=201" in refusal.detail) == ("privacy.min_batch", True)
    assert "PRIVATEER_MIN_BATCH=200" in str(refusal.remedy)
    assert find_refusals(DIRECT, min_batch=201) == []


def test_a_limit_above_the_budget_names_the_budget_too() -> None:
    (small,) = find_refusals(SHUFFLED, batch_bytes_max=1000)
    assert "PRIVATEER_BODY_BUDGET" not in str(small)
    (large,) = find_refusals(SHUFFLED, batch_bytes_max=1000, body_budget=1000)
    assert f"PRIVATEER_BODY_BUDGET={LARGEST.request_bytes(1000)}" in str(large.remedy)


def test_all_refusals_are_one_error_in_which_each_has_its_field_and_remedy() -> None:
    refusals = find_refusals(SHUFFLED, batch_bytes_max=1000, min_batch=300, body_limit=1024)
    assert len(refusals) == 3
    for count in range(1, 4):
        with pytest.raises(SpecError) as error:
            raise_refusals(refusals[:count], "as shipped")
        message = str(error.value)
        assert message == "; ".join(map(str, refusals[:count]))[:-1] + "; as shipped)"
        assert error.value.field == refusals[0].field
    raise_refusals([])


def test_an_unused_service_refuses_nothing() -> None:
    assert SHUFFLED.find_refusals(shuffler=ShufflerLimits(min_batch=300))[0].field == "privacy.min_batch"
    assert SHUFFLED.find_refusals(ServerLimits()) == []
    assert not re.search("PRIVATEER_REPORT", str(find_refusals(SHUFFLED, report_bytes_max=10)))
