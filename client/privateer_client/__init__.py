"""Privateer on a device: ``from privateer_client import Client``."""

from typing import TYPE_CHECKING, Any

from privateer_client.arm import Arm
from privateer_client.async_session import AsyncSession
from privateer_client.client import Client
from privateer_client.ledger.ledger import Ledger
from privateer_client.session import Session
from privateer_client.states import ChoiceState, ReportStatus
from privateer_core.errors import InvalidValueWarning
from privateer_core.privacy.terms_verification import Limits

if TYPE_CHECKING:
    from privateer_client.async_client import AsyncClient
    from privateer_client.offline import OfflinePolicy

__all__ = [
    "Arm",
    "AsyncClient",
    "AsyncSession",
    "ChoiceState",
    "Client",
    "InvalidValueWarning",
    "Ledger",
    "Limits",
    "OfflinePolicy",
    "ReportStatus",
    "Session",
]


def __getattr__(name: str) -> Any:
    """Import on demand what few devices need."""
    if name == "AsyncClient":
        from privateer_client.async_client import AsyncClient

        return AsyncClient
    if name == "OfflinePolicy":
        from privateer_client.offline import OfflinePolicy

        return OfflinePolicy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
