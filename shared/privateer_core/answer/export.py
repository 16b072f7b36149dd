"""The export of an experiment: one document to keep, to decide by, or to begin a new experiment with."""

import base64
import binascii
import hashlib
import re
from typing import Any, Final, Literal

import msgspec

from privateer_core.answer import Answer
from privateer_core.answer.policy_view import PolicyView
from privateer_core.codec import encode_canonical_json
from privateer_core.errors import SpecError
from privateer_core.experiment_status import Status
from privateer_core.prepared_types import cache_decoder
from privateer_core.privacy.record import Record
from privateer_core.wire.publication import digest as digest_of

FORMAT: Final = "privateer/export/3"
_FAMILY: Final = re.compile(r"privateer/export/(\d{1,9})")
_DIGEST: Final = "digest"


class Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Policy, result, record and learner state of an experiment: functions of its releases, at no further privacy cost.

    Attributes
    ----------
    format
        `FORMAT`.
    experiment, version, status
        The version and status at the export.
    spec, policy
        As in `GET /experiments/NAME` and ``/policy``.
    result
        As in ``/result``; None if publications have none.
    record
        As in ``/privacy``, with the certificates.
    state, publication
        The learner's state and the whole publication, in base64.
    publication_digest
        The SHA-256 of the publication, in hex: its identifier for devices and shufflers.
    digest
        The SHA-256 of all other keys as canonical JSON (RFC 8785), in hex.
    """

    format: Literal["privateer/export/3"]
    experiment: str
    version: int
    status: Status
    spec: dict[str, Any]
    policy: PolicyView
    result: Answer | None
    record: Record
    state: str
    publication: str
    publication_digest: str
    digest: str

    @property
    def publication_bytes(self) -> bytes:
        """The publication's bytes."""
        return base64.b64decode(self.publication)

    @property
    def state_bytes(self) -> bytes:
        """The learner's encoded state."""
        return base64.b64decode(self.state)


def make_export(
    experiment: str,
    version: int,
    status: Status,
    *,
    spec: dict[str, Any],
    policy: PolicyView,
    result: Answer | None,
    record: Record,
    state: bytes,
    publication: bytes,
) -> Export:
    """Return the export of an experiment, with its digests."""
    export = Export(
        format=FORMAT,
        experiment=experiment,
        version=version,
        status=status,
        spec=spec,
        policy=policy,
        result=result,
        record=record,
        state=base64.b64encode(state).decode(),
        publication=base64.b64encode(publication).decode(),
        publication_digest=digest_of(publication).hex(),
        digest="",
    )
    return msgspec.structs.replace(export, digest=_digest(msgspec.json.decode(msgspec.json.encode(export))))


def read_export(document: Any, field: str) -> Export:
    """Parse a JSON value as an export, and check its digests.

    Parameters
    ----------
    field
        The name of the document in errors.

    Raises
    ------
    SpecError
        If it is not an export, is of another version of the format, or is damaged.
    """
    remedy = "give a file that privateer export wrote"
    if not isinstance(document, dict):
        raise SpecError("is not an export", field=field, remedy=remedy)
    _check_format(document.get("format"), field)
    try:
        if document.get(_DIGEST) != _digest(document):
            remedy = "export it again, or take another copy"
            raise SpecError("is damaged: its digest is another one", field=field, remedy=remedy)
        export = msgspec.convert(document, cache_decoder(Export))
        base64.b64decode(export.state, validate=True)
        published = base64.b64decode(export.publication, validate=True)
    except (msgspec.ValidationError, RecursionError, OverflowError, binascii.Error, ValueError) as error:
        raise SpecError(f"is not an export: {error}", field=field, remedy=remedy) from None
    if digest_of(published).hex() != export.publication_digest:
        raise SpecError("is damaged: its publication has another digest", field=field, remedy="export it again")
    return export


def _check_format(name: Any, field: str) -> None:
    """Refuse a document of another format; the error says whether it is newer or older."""
    family = _FAMILY.fullmatch(name) if isinstance(name, str) else None
    if family is None:
        raise SpecError("is not an export", field=field, remedy="give a file that privateer export wrote")
    if name != FORMAT:
        newer = int(family[1]) > int(FORMAT.rpartition("/")[2])
        detail = f"was written by {'a newer' if newer else 'an older'} Privateer, in the format {name}"
        remedy = "update Privateer here" if newer else "export it again"
        raise SpecError(f"{detail}; this one reads {FORMAT}", field=field, remedy=remedy)


def _digest(document: dict[str, Any]) -> str:
    rest = {key: value for key, value in document.items() if key != _DIGEST}
    return hashlib.sha256(encode_canonical_json(rest)).hexdigest()
