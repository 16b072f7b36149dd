"""The path of reports into the store: they are decrypted, counted, and answered once they are durable.

::

    POST /reports, POST /batches       requests (api/endpoints.py) and their admission: tokens of
         |                             devices, and claims of shufflers (admission.py)
         v
    Intake.submit, Intake.deliver      the event loop (intake.py): a queue in which senders take turns
         |
         v  a group of requests
    DecryptPool.decrypt                processes decrypt large groups (decryption.py)
         |
         v  decrypted messages
    ReportCounter.count                one thread, one transaction (counting.py): for each experiment an Accumulator
         |                             (accumulator.py) accepts reports of the round, and refuses other messages
         v  a change for each experiment
    LockedExperiments.commit           the store: from here on no report is lost, and none counts twice
         |
         v
    Receipt                            the answer to each sender (receipts.py)

A round that is full or due is closed in another thread (`ReportCounter.close`); requests for its experiment wait.
"""
