"""How long a secret is compared does not tell how much of it somebody has: the lines that run are always the same."""

import hmac
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from privateer_core.errors import AttestationRefused, PrivateerError
from privateer_core.wire.attestation import attest, verify_attestation
from privateer_server.admin_tokens import AdminTokens, Scope, create_token, token_digest

NOW = 1_000_000.0
SECRETS = [bytes([number]) * 32 for number in range(3)]


def list_lines(check: Callable[[], Any]) -> list[tuple[str, int]]:
    """Return every line of Python that a check runs, in order."""
    lines: list[tuple[str, int]] = []

    def note(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.append((frame.f_code.co_filename, frame.f_lineno))
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        check()
    except PrivateerError:
        pass
    finally:
        sys.settrace(before)
    return lines


def forge(attestation: str, n_right: int) -> str:
    """Return an attestation with so many right digits at the start of its code."""
    start, code = attestation[:-64], attestation[-64:]
    return start + code[:n_right] + "".join("1" if digit == "0" else "0" for digit in code[n_right:])


def trace_forgeries() -> Iterator[list[tuple[str, int]]]:
    """The lines that run for attestations of which more and more is right."""
    attestation = attest(SECRETS[0], "test", "me", int(NOW) + 60)
    assert verify_attestation(attestation, "test", SECRETS, NOW) == "me"
    for n_right in (0, 1, 2, 32, 63):
        forged = forge(attestation, n_right)
        with pytest.raises(AttestationRefused):
            verify_attestation(forged, "test", SECRETS, NOW)
        yield list_lines(lambda forged=forged: verify_attestation(forged, "test", SECRETS, NOW))  # type: ignore[misc]


def test_forged_attestations_run_the_same_lines() -> None:
    first, *others = trace_forgeries()
    assert len(first) > 5
    assert all(lines == first for lines in others)


def test_a_comparison_that_returns_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a loop compares the digits until two differ."""

    def compare_digits(code: str, other: str) -> bool:
        return all(digit == other_digit for digit, other_digit in zip(code, other, strict=True))

    monkeypatch.setattr(hmac, "compare_digest", compare_digits)
    lengths = [len(lines) for lines in trace_forgeries()]
    assert lengths == sorted(set(lengths))


def test_the_secret_that_signed_is_not_told() -> None:
    """The first and the last of the backend's secrets are found after the same lines."""
    attestations = [attest(secret, "test", "me", int(NOW) + 60) for secret in SECRETS]
    first, *others = (
        list_lines(lambda text=text: verify_attestation(text, "test", SECRETS, NOW))  # type: ignore[misc]
        for text in attestations
    )
    assert len(first) > 5
    assert all(lines == first for lines in others)


def test_the_place_of_an_admin_token_is_not_told(tmp_path: Path) -> None:
    created = [create_token(name, [Scope.READ], NOW + 60) for name in ("one", "two", "three")]
    file = tmp_path / "tokens"
    file.write_text("".join(f"{token.to_line()}\n" for _, token in created))
    tokens = AdminTokens(token_digest("the-one-with-all-scopes"), file)
    tokens.authorize(created[0][0], Scope.READ, NOW)  # the file is read now
    first, *others = (
        list_lines(lambda secret=secret: tokens.authorize(secret, Scope.READ, NOW))  # type: ignore[misc]
        for secret, _ in created
    )
    assert len(first) > 5
    assert all(lines == first for lines in others)
