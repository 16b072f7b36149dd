"""Every instance of every algorithm, and its rounds."""

import pytest

from tests.contract.instances import SPECS
from tests.contract.subjects import history


@pytest.fixture(params=SPECS)
def name(request) -> str:
    return request.param


@pytest.fixture
def spec(name):
    return SPECS[name]


@pytest.fixture
def turns(name):
    """Return all rounds of the experiment."""
    return history(name)
