"""A publication that a device follows: decoded, and ready to seal reports for its round."""

from typing import Any

import msgspec

from privateer.codec import decode
from privateer.errors import InputError, Malformed, SpecError, TermsRefused
from privateer.families import AnySpec, parse_any_spec
from privateer.sampling.entropy import SecureNoise
from privateer.wire.envelope import header_of
from privateer.wire.publication import Publication, decode_publication, digest
from privateer_client.sealing import OVERHEAD, REPORT_ID_SIZE, Sealer


class Followed:
    """What publications of all families have in common.

    Parameters
    ----------
    body
        The publication, as fetched.
    kind
        Spec of the family that is asked for.
    policy_type
        Its policies.
    remedy
        What to do if the experiment is of another family.

    Raises
    ------
    Malformed
        If the publication is none.
    InputError
        If the experiment is of another family.
    """

    def __init__(self, body: bytes, kind: type[AnySpec], policy_type: type[Any], remedy: str) -> None:
        publication = decode_publication(body)
        self.round = publication.round
        self.spec: Any = _spec(publication)
        if not isinstance(self.spec, kind):
            raise InputError("an experiment of another family", field="name", remedy=remedy)
        self.policy: Any = decode(publication.policy, policy_type)
        self.header = header_of(self.round, digest(body))

    @property
    def terms(self) -> Any:
        """How reports of this round are randomized."""
        return self.policy.terms

    def _agree(self, name: str, **more: bool) -> None:
        """Refuse a publication whose parts disagree."""
        same = {
            "experiment": self.round.experiment == self.spec.experiment.name == name,
            "version": self.round.version == self.policy.version,
            "model": self.round.model == self.spec.privacy.model == self.terms.model,
            "batch": self.round.batch == self.terms.batch,
            "messages": self.round.messages == self.terms.messages,
            **more,
        }
        for field, agrees in same.items():
            if not agrees:
                raise TermsRefused("round, spec and policy disagree", field=field, remedy="do not take part")

    def _prepare(self) -> None:
        """Make what randomizes and seals; only now, since terms that were not checked may name no randomizer."""
        try:
            self._mechanism = self.policy.mechanism
        except SpecError as error:
            raise TermsRefused("no such randomizer", field=error.field, remedy="do not take part") from None
        if self.round.sealed_size != OVERHEAD + REPORT_ID_SIZE + self._mechanism.report_size:
            raise TermsRefused("not the size of this mechanism's reports", field="sealed_size")
        self._sealer = Sealer(self.round, self.header)
        self._noise = SecureNoise()

    def _sealed(self, contributions: Any) -> list[bytes]:
        """What each person sends: all sealed messages, one after another."""
        rows, size = self._mechanism.randomize(contributions, self._noise), self._mechanism.report_size
        told = [row.tobytes() for row in rows.reshape(len(rows), -1)]
        return [b"".join(map(self._sealer.seal, _cut(report, size))) for report in told]


def _cut(report: bytes, size: int) -> list[bytes]:
    return [report[start : start + size] for start in range(0, len(report), size)]


def _spec(publication: Publication) -> AnySpec:
    try:
        data = msgspec.json.decode(publication.spec, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Malformed("not a spec", remedy="fetch the policy again") from None
    try:
        return parse_any_spec(data)
    except SpecError as error:
        remedy = "fetch the policy again, or update the client library"
        raise Malformed(
            f"not a spec that this device knows: {error.detail}", field=error.field, remedy=remedy
        ) from None
