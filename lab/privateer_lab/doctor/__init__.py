"""``privateer doctor``: read-only checks of the data and responses of running or stopped services.

It takes no lock of an SQLite file, and leaves no file beside it; its transactions in PostgreSQL are read-only. It shows
no key, and nothing about participants: it quotes names of experiments and files, and versions.
"""
