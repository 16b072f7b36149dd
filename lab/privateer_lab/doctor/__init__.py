"""``privateer doctor``: looks at the data and the answers of services that run or are stopped, and changes nothing.

It opens no SQLite file, which would lock it or leave files beside it, but reads a copy in memory; PostgreSQL it asks in
transactions that cannot write. It shows no key, and nothing about people: it quotes names of experiments and files, and
versions.
"""
