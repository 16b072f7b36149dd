"""Reports whose time has come: made for the rounds that are open then, whatever happened when."""

from privateer_client.account import Account
from privateer_client.answers import Outcome
from privateer_client.choice import Choice
from privateer_client.delivery import Pace, Steps
from privateer_client.publications import Publications
from privateer_client.reports import Reports
from privateer_core.errors import Deleted, HeadWentBack, InputError, LogForked, PrivateerError, Unavailable


class Due:
    """Makes the reports on choices that are kept, when they are due.

    Parameters
    ----------
    account
        Where choices are kept, and reports wait to be sent.
    pace
        Whose clock tells what is due.
    """

    def __init__(self, account: Account, pace: Pace) -> None:
        self._account, self._pace = account, pace

    def settle(self, publications: Publications, timeout: float) -> Steps[Outcome | None]:
        """Make the report on the choice that is kept for an experiment, if it is due; it then waits to be sent.

        Returns
        -------
        None if there is nothing to do any more: it is made, or not due. ``pending``: no round takes it, for now.
        ``not-asked``: none has for so long that the device has erased the choice.

        Raises
        ------
        LogForked, HeadWentBack
            If the server contradicts itself.
        """
        identity = publications.address.identity
        try:
            choice = self._account.choice(identity)
        except InputError:  # whoever joins the experiment is told
            return Outcome.PENDING
        if choice is None or not choice.is_due(self._pace.clock.now()):
            return None
        paid = self._account.payment(identity)
        if paid is not None and not paid.allows(choice.period):
            self._account.forget(identity)
            return None
        return (yield from self._made(choice, publications, timeout))

    def _made(self, choice: Choice, publications: Publications, timeout: float) -> Steps[Outcome | None]:
        is_over = choice.is_given_up(self._pace.clock.now())
        try:
            opened = yield from publications.opened(None, timeout)
            if self._account.choice(publications.address.identity) is None:
                return None  # the person has erased it while the server took its time
            if Reports(publications.address, self._account).on(choice, opened.participation) is not None:
                return None
        except Unavailable:
            return Outcome.PENDING
        except Deleted:
            is_over = True
        except (LogForked, HeadWentBack):  # the device goes on with nothing at this server
            raise
        except PrivateerError:  # of its terms, of the budget: another round may do better
            pass
        if not is_over:
            return Outcome.PENDING
        self._account.forget(publications.address.identity)
        return Outcome.NOT_ASKED
