"""``privateer doctor``: looks at the data and the answers of services that run or are stopped, and changes nothing.

It takes no lock of an SQLite file, and leaves none beside it; PostgreSQL it asks in transactions that cannot write. It
shows no key, and nothing about people: it quotes names of experiments and files, and versions.
"""
