"""The parts of a publication, parsed and compared, and what they mean for reports."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from privateer_core.algorithms import algorithm, parse_spec
from privateer_core.errors import Malformed, SpecError, TermsRefused
from privateer_core.policies.gain_policy import check_policy, decode_policy
from privateer_core.policies.policy import Policy
from privateer_core.spec.spec import Spec

_CHANGEABLE_SECTIONS: Final = {"experiment", "sources", "population", "algorithm"}
"""Sections of a spec that do not affect the meaning of reports and their privacy, except for the names of arms and the
promises to sources."""


def parse_spec_body(body: bytes) -> Spec:
    """Parse the spec of a publication; `Malformed` if it is not JSON, or no spec that this version knows."""
    try:
        data = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Malformed("not a spec", remedy="fetch the policy again") from None
    try:
        return parse_spec(data)
    except SpecError as error:
        remedy = "fetch the policy again, or update the client library"
        detail = f"not a spec that this device knows: {error.detail}"
        raise Malformed(detail, field=error.field, remedy=remedy) from None


def decode_policy_body(body: bytes, spec: Spec) -> Policy:
    """Parse the policy of a publication, checked against the spec; `TermsRefused` without such a randomizer."""
    try:
        policy = decode_policy(body, algorithm(spec.algorithm.name).policy)
        check_policy(policy, spec)
    except SpecError as error:
        raise TermsRefused("there is no such randomizer", field=error.field, remedy="do not take part") from None
    return policy


def require_agreement(is_equal: bool, field: str) -> None:
    """Refuse a publication whose parts disagree about a field."""
    if not is_equal:
        raise TermsRefused("round, spec and policy disagree", field=field, remedy="do not take part")


def digest_meaning(spec: Spec, options: int | None = None, cohort: str = "") -> bytes:
    """Return a digest of the parts of a spec that determine the meaning of reports and their privacy.

    options: number of arms or actions that are included, the first ones; None: all.
    cohort: the source or tier whose promise is included; empty: the promise to the experiment's own participants.
    """
    tables = spec.model_dump(mode="json", exclude=_CHANGEABLE_SECTIONS, exclude_defaults=True)
    # All names are included, since whether a device reports must not depend on the participant's arm.
    names, promised_epsilon = spec.options[:options], spec.cohort_privacy(cohort).epsilon
    # Keys of tables may come in any order, but contexts have the order of the features.
    digest_input = [tables, list(spec.features), names, promised_epsilon]
    # The parts of an outcome besides the reward are included, since another spec would read its numbers differently.
    default_outcome = spec.without_outcome(None)
    if spec.rewards > 1 or isinstance(default_outcome, Mapping):
        digest_input += [spec.rewards, list(default_outcome) if isinstance(default_outcome, Mapping) else []]
    if spec.experiment.reports_per_person > 1:
        digest_input += [spec.experiment.reports_per_person, spec.experiment.report_period_seconds]
    return hashlib.sha256(msgspec.json.encode(digest_input, order="deterministic")).digest()
