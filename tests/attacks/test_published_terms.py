"""A server that calls a published calibration tight: no device takes part, also where the papers are installed."""

import httpx
import pytest

from privateer_client import Client
from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.errors import TermsRefused
from privateer_core.privacy.trust import TIGHT
from privateer_core.spec.spec import Spec
from tests.support.devices import EVERYTHING
from tests.support.memory_ledgers import MemoryLedger
from tests.support.notary import Notary
from tests.support.publications import published

SPECS: dict[str, Spec] = {
    f"{name}-{case}": spec
    for name in ALGORITHMS
    for case, spec in algorithm(name).spec.instances().items()
    if spec.privacy.trust.calibration != TIGHT
}


def test_the_papers_have_such_algorithms() -> None:
    assert len(SPECS) >= 6


@pytest.mark.parametrize("name", SPECS)
def test_a_published_calibration_is_refused_whatever_it_is_called(name: str) -> None:
    body, ledger = published(SPECS[name], terms={"calibration": TIGHT}), MemoryLedger()
    way = Notary().transport(lambda _: httpx.Response(200, content=body))
    client = Client("http://server", shuffler="http://shuffler", limits=EVERYTHING, ledger=ledger, transport=way)
    with pytest.raises(TermsRefused, match=r"calibration: the algorithm is for simulation alone"):
        client.join(SPECS[name].name)
    assert ledger.paid == []
