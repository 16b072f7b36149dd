"""The arm that an experiment shows a person, as their device keeps it."""

from contextlib import suppress
from dataclasses import replace

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

    def standing(self, followed: Participation, now: float) -> KeptArm | None:
        """Return the arm that the person had, if it is still theirs."""
        arm = self._account.change_arm(self._identity, lambda arm: arm)
        return arm if arm is not None and not followed.cohort and arm.stands(followed, now) else None

    def coins(self, followed: Participation, *, fresh: bool) -> NDArray[np.uint32]:
        """Return the coins of a choice: of its own, since its report may show them, or those of the final policy."""
        drawn = followed.coins(1)

        def final(arm: KeptArm | None) -> KeptArm:
            known = arm or KeptArm()
            return known if len(known.coins) and not fresh else replace(known, coins=drawn)

        if followed.is_over and not followed.cohort:
            with suppress(InputError):  # what cannot be kept is drawn anew each time
                return (self._account.change_arm(self._identity, final) or KeptArm(coins=drawn)).coins
        return drawn

    def show(self, choice: KeptChoice, followed: Participation) -> None:
        """Keep the arm of a choice; what is decided for everybody, or by the final policy, needs no keeping."""
        if not (followed.cohort or followed.is_over or choice.is_common):
            with suppress(InputError):
                self._account.change_arm(self._identity, lambda arm: (arm or KeptArm()).showing(choice))
