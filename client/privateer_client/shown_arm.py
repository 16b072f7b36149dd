"""The arm that an experiment shows a person, as their device keeps it."""

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from privateer_client.ledger.account_protocol import Account
from privateer_client.ledger.arm import KeptArm
from privateer_client.ledger.choice import KeptChoice
from privateer_client.participation import Participation
from privateer_core.errors import InputError


class ShownArm:
    """The arm of one experiment's own people; those of a source report on the past, and keep none.

    account: where it is kept.
    identity: of the experiment.
    """

    def __init__(self, account: Account, identity: str) -> None:
        self._account, self._identity = account, identity

    def offer(self, followed: Participation) -> None:
        """Keep the coins of the next choice: sessions that join at once then choose alike."""
        if not followed.cohort:
            with suppress(InputError):  # the choice says whether it can be kept
                self._account.change_arm(self._identity, lambda arm: (arm or KeptArm()).offered(followed))

    def standing(self, followed: Participation, now: float) -> KeptArm | None:
        """Return the arm that the person had, if it is still theirs."""
        arm = self._account.change_arm(self._identity, lambda arm: arm)
        return arm if arm is not None and not followed.cohort and arm.stands(followed, now) else None

    def coins(self, followed: Participation, *, fresh: bool) -> NDArray[np.uint32]:
        """Return the coins that were drawn for the next choice, or others."""
        # Every choice has coins of its own, so that no sequence of arms can be matched with the coins of a report.
        arm = None if fresh else self._account.change_arm(self._identity, lambda arm: arm)
        return arm.coins if arm is not None and len(arm.coins) else followed.coins(1)

    def show(self, choice: KeptChoice, followed: Participation) -> None:
        """Keep the arm of a choice; what is decided for everybody needs no keeping."""

        def showing(arm: KeptArm | None) -> KeptArm:
            return (arm or KeptArm()).showing(choice, is_over=followed.is_over)

        if not (followed.cohort or choice.is_common):
            with suppress(InputError):
                self._account.change_arm(self._identity, showing)
