"""Errors that Privateer raises on purpose. docs/problems.md lists them with their remedies.

A message names the field, its constraint and the remedy, and never carries a context, arm, reward or raw value.
"""

from typing import ClassVar


class PrivateerError(Exception):
    """Base of all errors.

    Parameters
    ----------
    detail
        What went wrong, in one sentence that contains no participant's value.
    field
        The dotted name of the offending field, e.g. ``privacy.epsilon``.
    remedy
        What to do about the error.
    """

    slug: ClassVar[str] = "error"
    title: ClassVar[str] = "Error"
    status: ClassVar[int] = 500

    def __init__(self, detail: str, *, field: str | None = None, remedy: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.remedy = remedy

    def __str__(self) -> str:
        prefix = f"{self.field}: " if self.field else ""
        suffix = f" ({self.remedy})" if self.remedy else ""
        return f"{prefix}{self.detail}{suffix}"


class SpecError(PrivateerError):
    """A spec, setting or argument misses its constraint."""

    slug, title, status = "spec-invalid", "Invalid specification", 422


class PluginError(SpecError):
    """A plug-in that a spec names is missing, installed twice, or cannot be imported."""

    slug, title, status = "plugin-missing", "Plug-in missing", 422


class InputError(PrivateerError):
    """The device cannot use a context, a reward or an argument. The message names the field, never its value."""

    slug, title, status = "input-invalid", "Invalid input", 422


class TermsRefused(PrivateerError):
    """The published terms violate the limits of the device or the promise of the experiment."""

    slug, title, status = "terms-refused", "Terms refused by the device", 403


class BudgetExceeded(PrivateerError):
    """The report would exceed the device's budget. The message states the spent sum, the cost and the limit."""

    slug, title, status = "budget-exceeded", "Budget exceeded", 403


class AlreadyReported(PrivateerError):
    """The device has reported to the experiment, and will not do so again."""

    slug, title, status = "already-reported", "Already reported", 409


class ReportRefused(PrivateerError):
    """An endpoint refuses a report. It counts the refusal by its slug."""

    slug, title, status = "report-refused", "Report refused", 400


class Malformed(ReportRefused):
    """The body is not an envelope."""

    slug, title, status = "malformed-report", "Malformed report", 400


class WrongSize(ReportRefused):
    """The sealed bytes are not a whole number of reports of the round's size."""

    slug, title, status = "wrong-size", "Wrong report size", 400


class WrongKey(ReportRefused):
    """The report is sealed to another key than the round's."""

    slug, title, status = "wrong-key", "Wrong key", 409


class WrongDigest(ReportRefused):
    """The report was made for another publication of the same version."""

    slug, title, status = "wrong-digest", "Wrong publication", 409


class RoundClosed(ReportRefused):
    """The version no longer takes reports."""

    slug, title, status = "round-closed", "Round closed", 409


class RoundUnknown(ReportRefused):
    """The version was never published."""

    slug, title, status = "round-unknown", "Unknown round", 409


class DecryptionFailed(ReportRefused):
    """Decrypting the report failed."""

    slug, title, status = "decryption-failed", "Report does not open", 400


class OutOfRange(ReportRefused):
    """The report opened, but the round's mechanism cannot produce it."""

    slug, title, status = "out-of-range", "Not a report of this mechanism", 400


class DuplicateReport(ReportRefused):
    """A report with this id was counted before."""

    slug, title, status = "duplicate-report", "Duplicate report", 409


class WrongEndpoint(ReportRefused):
    """A report for the shuffler arrived at the server, or the reverse."""

    slug, title, status = "wrong-endpoint", "Wrong endpoint", 400


class SenderRefused(ReportRefused):
    """A body has reports of several participants, but no trusted sender signed it."""

    slug, title, status = "sender-refused", "Sender refused", 403


class TokenRefused(ReportRefused):
    """The endpoint requires upload tokens, and this token is not accepted.

    Attributes
    ----------
    challenge
        What the answer's ``WWW-Authenticate`` says, which asks for a token (RFC 9577).
    """

    slug, title, status = "token-refused", "Upload token refused", 401
    challenge: str = "PrivateToken"


class TokenMissing(TokenRefused):
    """The endpoint requires upload tokens, and the report has no token."""

    slug, title, status = "token-missing", "Upload token missing", 401


class TokenInvalid(TokenRefused):
    """The upload token is no token, or the issuer did not sign it."""

    slug, title, status = "token-invalid", "Upload token invalid", 401


class TokenWrongAudience(TokenRefused):
    """The upload token is for another experiment, endpoint or issuer."""

    slug, title, status = "token-wrong-audience", "Upload token for elsewhere", 401


class TokenExpired(TokenRefused):
    """The key that signed the upload token has expired."""

    slug, title, status = "token-expired", "Upload token expired", 401


class TokenSpent(TokenRefused):
    """Another report came with the upload token."""

    slug, title, status = "token-spent", "Upload token spent", 401


class TokenRequestRefused(PrivateerError):
    """The issuer cannot sign a request for an upload token: its form, type or key is not one of the issuer's."""

    slug, title, status = "token-request-refused", "Token request refused", 422


class AttestationRefused(PrivateerError):
    """The issuer does not believe that a request for an upload token comes from one of the application's devices."""

    slug, title, status = "attestation-refused", "Attestation refused", 403


class TokensExhausted(PrivateerError):
    """The device has received all upload tokens of the experiment that the issuer gives to a device."""

    slug, title, status = "tokens-exhausted", "No more upload tokens", 403


class BatchRefused(PrivateerError):
    """A batch or claim has a wrong signature, size, round or shuffler."""

    slug, title, status = "batch-refused", "Batch refused", 403


class NotFound(PrivateerError):
    """The experiment, version or page does not exist."""

    slug, title, status = "not-found", "Not found", 404


class Deleted(NotFound):
    """The experiment was deleted, and its name is never used again."""

    slug, title, status = "deleted", "Deleted", 410


class Conflict(PrivateerError):
    """The name is taken by another experiment, the experiment by another shuffler, or its state forbids the change."""

    slug, title, status = "conflict", "Conflict", 409


class Unauthorized(PrivateerError):
    """The admin token is missing or wrong."""

    slug, title, status = "unauthorized", "Unauthorized", 401


class AdminTokenExpired(Unauthorized):
    """The admin token has expired."""

    slug, title, status = "admin-token-expired", "Admin token expired", 401


class ScopeMissing(PrivateerError):
    """The admin token lacks the scope for this operation.

    Attributes
    ----------
    scope
        What it would need.
    """

    slug, title, status = "scope-missing", "Scope missing", 403

    def __init__(self, detail: str, scope: str = "", *, field: str | None = None, remedy: str | None = None) -> None:
        super().__init__(detail, field=field, remedy=remedy)
        self.scope = scope


class BadRequest(PrivateerError):
    """The service cannot read the request."""

    slug, title, status = "bad-request", "Bad request", 400


class ParameterInvalid(PrivateerError):
    """A parameter of a request, or a field of its body, misses its constraint."""

    slug, title, status = "parameter-invalid", "Invalid parameter", 422


class TooLarge(PrivateerError):
    """The body is larger than the endpoint's limit."""

    slug, title, status = "too-large", "Body too large", 413


class HeadersTooLarge(TooLarge):
    """The headers are larger than the service's limit."""

    slug, title, status = "headers-too-large", "Headers too large", 431


class Unavailable(PrivateerError):
    """The service cannot answer now. The same request may succeed later."""

    slug, title, status = "unavailable", "Unavailable", 503


class TokenWarning(UserWarning):
    """The device has got no upload token. Its report waits until it has one."""


class Untrusted(PrivateerError):
    """A learning server's publication contradicts its key, log or signatures. The service answers with status 502."""

    slug, title, status = "untrusted", "Server not trusted", 502


class SignatureInvalid(Untrusted):
    """A learning server's publication is not signed, or its signature does not verify."""

    slug, title, status = "signature-invalid", "Signature invalid", 502


class KeyChanged(Untrusted):
    """A learning server signs with another key than the one that is known, or keeps another log."""

    slug, title, status = "key-changed", "Key changed", 502


class ProofInvalid(Untrusted):
    """A learning server does not prove that what it published is in its log."""

    slug, title, status = "proof-invalid", "Proof invalid", 502


class LogRollback(Untrusted):
    """The head of a learning server's log is older than one that it has signed before."""

    slug, title, status = "log-rollback", "Log went back", 502


class LogForked(Untrusted):
    """A learning server has signed two heads of its log that do not continue each other."""

    slug, title, status = "log-forked", "Log forked", 502


class InvalidValueWarning(UserWarning):
    """The spec does not allow a participant's value: the report is made as if it were missing.

    It is no error, since whether a device reports must not tell its person's value. In tests, turn it into one.
    """


def exit_code(error: PrivateerError) -> int:
    """Return the exit code of a command: 3 if a service does not answer, 4 if nothing was found, otherwise 2."""
    return {Unavailable.status: 3, NotFound.status: 4}.get(error.status, 2)


def printable(text: str) -> str:
    """Replace line breaks and characters that control a terminal by question marks."""
    return "".join(character if character.isprintable() else "?" for character in text)
