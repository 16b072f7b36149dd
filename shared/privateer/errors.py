"""Every error that Privateer raises on purpose.

::

    PrivateerError
    ├── SpecError            spec-invalid            a spec, setting or argument misses its constraint
    ├── InputError           input-invalid           a context or reward that the device cannot use
    ├── TermsRefused         terms-refused           a device will not take part on these terms
    ├── BudgetExceeded       budget-exceeded         the device's ledger does not allow the report
    ├── AlreadyReported      already-reported        this device has contributed to the experiment
    ├── ReportRefused    (a report turned away at a door, counted by its slug)
    │   ├── Malformed        malformed-report        not an envelope
    │   ├── WrongSize        wrong-size              not a whole number of sealed reports of the round's size
    │   ├── WrongKey         wrong-key               sealed to another key than the round's
    │   ├── WrongDigest      wrong-digest            made for another publication of the same version
    │   ├── RoundClosed      round-closed            the version no longer takes reports
    │   ├── RoundUnknown     round-unknown           a version that was never published
    │   ├── Unopenable       unopenable              decryption failed
    │   ├── OutOfRange       out-of-range            opened, but no report of the round's mechanism
    │   ├── DuplicateReport  duplicate-report        the report's id was counted before
    │   ├── WrongDoor        wrong-endpoint              a report for the shuffler at the server, or the reverse
    │   └── SenderRefused    sender-refused          several people's reports without a trusted sender's signature
    ├── BatchRefused         batch-refused           a batch or claim that fails its signature, size, round or shuffler
    ├── NotFound             not-found               no such experiment, version or page
    ├── Conflict             conflict                another experiment has the name, or another shuffler the experiment
    ├── Unauthorized         unauthorized            the admin token is missing or wrong
    ├── BadRequest           bad-request             not a request that the service reads
    ├── TooLarge             too-large               a body above the door's limit
    │   └── HeadersTooLarge  headers-too-large       headers above the service's limit
    └── Unavailable          unavailable             a service that cannot answer now; try again

A message names the field, its constraint and the remedy, and never carries a context, arm, reward or raw value.
"""

from typing import ClassVar


class PrivateerError(Exception):
    """Base of all errors.

    Parameters
    ----------
    detail
        What went wrong, in one sentence without any person's value in it.
    field
        The dotted name of the offending field, e.g. ``privacy.epsilon``.
    remedy
        What to do about it.
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
        where = f"{self.field}: " if self.field else ""
        then = f" ({self.remedy})" if self.remedy else ""
        return f"{where}{self.detail}{then}"


class SpecError(PrivateerError):
    """A spec, setting or argument misses its constraint."""

    slug, title, status = "spec-invalid", "Invalid specification", 422


class InputError(PrivateerError):
    """A context or reward that the device cannot use; names the feature, never its value."""

    slug, title, status = "input-invalid", "Invalid input", 422


class TermsRefused(PrivateerError):
    """The published terms do not reach what the device, or the experiment itself, promises."""

    slug, title, status = "terms-refused", "Terms refused by the device", 403


class BudgetExceeded(PrivateerError):
    """The report would overrun the device's budget; the message states spent, asked and limit."""

    slug, title, status = "budget-exceeded", "Budget exceeded", 403


class AlreadyReported(PrivateerError):
    """The device has contributed to the experiment and will not do so again."""

    slug, title, status = "already-reported", "Already reported", 409


class ReportRefused(PrivateerError):
    """A report turned away at a door; counted by its slug."""

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


class Unopenable(ReportRefused):
    """Decryption failed."""

    slug, title, status = "unopenable", "Report does not open", 400


class OutOfRange(ReportRefused):
    """Opened, but not a report that the round's mechanism can produce."""

    slug, title, status = "out-of-range", "Not a report of this mechanism", 400


class DuplicateReport(ReportRefused):
    """The report's id was counted before."""

    slug, title, status = "duplicate-report", "Duplicate report", 409


class WrongEndpoint(ReportRefused):
    """A report for the shuffler arrived at the server, or the reverse."""

    slug, title, status = "wrong-endpoint", "Wrong endpoint", 400


class SenderRefused(ReportRefused):
    """Several people's reports in a body that no trusted sender signed."""

    slug, title, status = "sender-refused", "Sender refused", 403


class BatchRefused(PrivateerError):
    """A batch or a claim that fails its signature, size, round or shuffler."""

    slug, title, status = "batch-refused", "Batch refused", 403


class NotFound(PrivateerError):
    """No such experiment, version or page."""

    slug, title, status = "not-found", "Not found", 404


class Conflict(PrivateerError):
    """The name is taken by another experiment, or the experiment by another shuffler."""

    slug, title, status = "conflict", "Conflict", 409


class Unauthorized(PrivateerError):
    """The admin token is missing or wrong."""

    slug, title, status = "unauthorized", "Unauthorized", 401


class BadRequest(PrivateerError):
    """Not a request that the service reads."""

    slug, title, status = "bad-request", "Bad request", 400


class TooLarge(PrivateerError):
    """A body above the door's limit."""

    slug, title, status = "too-large", "Body too large", 413


class HeadersTooLarge(TooLarge):
    """Headers above the service's limit."""

    slug, title, status = "headers-too-large", "Headers too large", 431


class Unavailable(PrivateerError):
    """A service that cannot answer now; the same request may succeed later."""

    slug, title, status = "unavailable", "Unavailable", 503
