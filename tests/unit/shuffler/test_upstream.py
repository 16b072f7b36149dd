"""Authorities of the server's certificate."""

import pytest

from privateer_core.errors import SpecError
from privateer_shuffler.app import main
from privateer_shuffler.delivery import Upstream


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_file_without_certificates_is_told(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SpecError, match=r"ca\.pem holds no certificates") as caught:
        Upstream("https://learn.example", authorities=path)
    assert caught.value.field == "PRIVATEER_SERVER_CA"


def test_it_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PRIVATEER_DATA", str(tmp_path))
    monkeypatch.setenv("PRIVATEER_SERVER_URL", "https://learn.example")
    monkeypatch.setenv("PRIVATEER_SERVER_CA", str(tmp_path / "missing.pem"))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
