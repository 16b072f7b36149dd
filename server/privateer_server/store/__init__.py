"""The store of the server: its tables, its journal and the keys of rounds."""
