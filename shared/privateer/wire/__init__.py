"""Everything that crosses the network and may be read without opening a report.

The shuffler imports nothing else of the core but `privateer.serving`, `privateer.errors` and `privateer.clock`. None of
them imports numpy, randomizes or decrypts.
"""
