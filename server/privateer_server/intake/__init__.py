"""The way of reports into the store: they are opened, counted, and answered once they are durable.

::

    POST /reports, POST /batches       what comes in (api/endpoints.py), and what admits it: tokens of
         |                             devices, and claims of shufflers (admission.py)
         v
    Intake.submit, Intake.deliver      the event loop (intake.py): a queue in which senders take turns
         |
         v  a group of requests
    Openers.open                       processes decrypt (opening_pool.py, opening.py)
         |
         v  what the reports hold
    Counting.count                     one thread, one transaction (counting.py): for each experiment an Accumulator
         |                             (accumulator.py) takes what is a report of the round, and refuses the rest
         v  a change for each experiment
    Locked.commit                      the store: from here on nothing is lost, and nothing counts twice
         |
         v
    Receipt                            the answer to each sender (receipts.py)

A round that is full or due is closed in another thread (`Counting.close`); what comes for its experiment waits.
"""
