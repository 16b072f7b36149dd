"""Everything that crosses the network and may be read without opening a report.

The shuffler imports this package and nothing else of the core but ``privateer.errors`` and ``privateer.clock``:
there is no numpy here, no randomizer, and nothing that decrypts.
"""
