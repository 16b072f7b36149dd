import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core import errors
from privateer_core.errors import PrivateerError, SpecError
from privateer_core.wire.problem import problem_body, problem_type, read_slug


def every_error(kind=PrivateerError):
    return [kind, *(error for child in kind.__subclasses__() for error in every_error(child))]


ERRORS = [kind for kind in every_error() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_has_a_problem_document(kind):
    body = problem_body(kind("it went wrong", field="a.b", remedy="do this"), refused={"x": 1})
    assert msgspec.json.decode(body) == {
        "type": f"urn:privateer:problem:{kind.slug}",
        "title": kind.title,
        "status": kind.status,
        "detail": "it went wrong",
        "field": "a.b",
        "remedy": "do this",
        "refused": {"x": 1},
    }
    assert read_slug(body) == kind.slug


def test_slugs_are_distinct():
    assert len({kind.slug for kind in ERRORS}) == len(ERRORS)


def test_members_without_content_are_left_out():
    assert set(msgspec.json.decode(problem_body(SpecError("no")))) == {"type", "title", "status", "detail"}


@given(st.binary(max_size=100))
def test_noise_has_no_slug(body):
    assert read_slug(body) == "unknown"


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"type": 3}', b'{"type": "about:blank"}', b"[" * 100_000, b'{"type": "\xff"}', b""]
)
def test_other_documents_have_no_slug(body):
    assert read_slug(body) == "unknown"


def test_a_slug_is_found_by_its_type():
    assert read_slug(msgspec.json.encode({"type": problem_type("too-large")})) == "too-large"
