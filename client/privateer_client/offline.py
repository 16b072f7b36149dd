"""Choices by an exported policy, without requests, reports or stored data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import numpy as np

from privateer_client.inputs import encode_context, select_features
from privateer_client.participation import Participation
from privateer_core.answer import Answer
from privateer_core.answer.export import Export, read_export
from privateer_core.errors import InputError, Malformed, SpecError, TermsRefused
from privateer_core.privacy.terms_verification import Limits

_BYTES_MAX: Final = 64 << 20
_COINS: Final = 1 << 32
_FILE: Final = "FILE"


class OfflinePolicy:
    """The policy of an exported experiment.

    It decides as the device of a participant after the export, and it needs neither a server nor a ledger. These
    choices are not reported, so the experiment does not learn from them, and they cost no privacy.

    Parameters
    ----------
    export
        As `privateer_core.answer.export.read_export` returns it.

    Attributes
    ----------
    experiment, version, status
        Where the experiment stood when it was exported. A policy of one that was still open goes on trying arms.
    features, options
        Names of the features that `choose` asks for, and of what can be chosen.
    result
        What the experiment had found; None if its publications have no answer.

    Raises
    ------
    SpecError
        If its parts contradict each other, or are unknown to this version of the library.
    """

    def __init__(self, export: Export) -> None:
        try:
            # A paused round takes no reports, so that its privacy terms need no check.
            self._participation = Participation(export.publication_bytes, export.experiment, Limits(), is_paused=True)
        except (Malformed, TermsRefused) as error:
            remedy = "update the client library, or export it again"
            raise SpecError(f"cannot be followed: {error.detail}", field=error.field or _FILE, remedy=remedy) from None
        if self._participation.round.version != export.version:
            raise SpecError("is not the version of the publication", field="version", remedy="export it again")
        self.experiment, self.version, self.status = export.experiment, export.version, export.status
        self.features = self._participation.spec.input_names
        self.options = self._participation.spec.options
        self.result: Answer | None = export.result

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the file that ``privateer export NAME FILE.json`` wrote.

        Raises
        ------
        SpecError
            If the file cannot be read, is no export, is damaged, or is of another version of the format.
        """
        try:
            with Path(path).open("rb") as file:
                body = file.read(_BYTES_MAX + 1)
        except OSError:
            raise SpecError(f"cannot read {path}", field=_FILE, remedy="name a file of privateer export") from None
        return cls.read(body)

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Read the bytes of an exported file; raise the same errors as `load`."""
        remedy = "give a file that privateer export wrote"
        if len(body) > _BYTES_MAX:
            raise SpecError(f"has more than {_BYTES_MAX} bytes", field=_FILE, remedy=remedy)
        try:
            document = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise SpecError("is damaged, or not JSON", field=_FILE, remedy=remedy) from None
        return cls(read_export(document, _FILE))

    def choose(self, context: Mapping[str, Any] = {}, *, coins: int | None = None) -> Any:
        """Choose for a participant.

        Parameters
        ----------
        context
            A value for each feature of the experiment.
        coins
            32 bits that decide where the policy draws among several arms: the same coins and context choose the same.
            By default they come from the operating system.

        Returns
        -------
        What `Session.choose` returns: the name of an arm; how often each action is played, a mapping {row: times}; or
        a point as a list of coordinates, or two in a mapping {name: point}.

        Raises
        ------
        InputError
            If a feature is not given, or unknown, or ``coins`` are not 32 bits.

        Warns
        -----
        InvalidValueWarning
            If the spec has no place for a value, which then counts as missing.
        """
        if coins is not None and (type(coins) is not int or not 0 <= coins < _COINS):
            raise InputError("must be 0 to 2**32 - 1", field="coins", remedy="leave them out to have some drawn")
        drawn_coins = self._participation.draw_coins(1) if coins is None else np.array([coins], np.uint32)
        spec, participation = self._participation.spec, self._participation
        decisions = participation.decide(encode_context(select_features(context, spec), spec.features), drawn_coins)
        return participation.decider.present_decision(spec, decisions)
