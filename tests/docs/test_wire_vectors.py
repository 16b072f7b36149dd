"""The committed vectors of the wire format are what code and services do; ``make documents`` writes them anew."""

from tests.documents import uploads, vectors


def test_the_vectors_are_what_devices_do() -> None:
    for path, text in vectors.documents().items():
        assert path.read_text() == text, f"{path} is not what the code does: run make documents"


def test_the_vectors_are_what_services_answer() -> None:
    for path, text in uploads.documents().items():
        assert path.read_text() == text, f"{path} is not what the services answer: run make documents"
