"""The helper's part in batches of votes in shares: no other part of the shuffler opens a share.

It opens the helper's shares alone, each of which is random numbers by itself. The rest of the shuffler imports nothing
that reads or opens a report, and loads this part for the first batch in shares.
"""
