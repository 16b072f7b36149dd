"""Everything that crosses the network and may be read without opening a report.

The shuffler imports nothing else of the core but `privateer_core.serving`, `privateer_core.errors` and
`privateer_core.clock`. None of them imports numpy, randomizes or decrypts.
"""
