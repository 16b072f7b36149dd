"""The code that all services share: they listen, read bodies, answer errors, log, and keep their files.

Nobody holds a connection, a header, a body or memory for long. No device imports this package.
"""
