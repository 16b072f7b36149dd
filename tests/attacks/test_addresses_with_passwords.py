"""An address of a database may have a password in it, which no message repeats."""

import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.store.database import Schema
from privateer_core.serving.store.postgres import PostgresDatabase


@pytest.mark.parametrize("password", ["hunter2%zz", "hunt er2", "hunter2@@"])
def test_an_address_that_cannot_be_read_is_not_repeated(password: str) -> None:
    with pytest.raises(SpecError) as refused:
        PostgresDatabase(f"postgresql://u:{password}@127.0.0.1:1/x", Schema("x", 1, ()), "PRIVATEER_DATABASE")
    assert "PRIVATEER_DATABASE" in str(refused.value)
    assert "hunt" not in str(refused.value)
    assert "er2" not in str(refused.value)
