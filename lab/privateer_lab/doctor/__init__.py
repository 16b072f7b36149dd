"""``privateer doctor``: looks at the data and the answers of services that run or are stopped, and changes nothing.

It opens no database: SQLite would lock it, or leave files beside it. It reads the bytes and makes a copy in memory. It
tells no key, and nothing about people: names of experiments, versions and files are all that it quotes.
"""
