"""How the services listen: nobody holds a connection, a header, a body or memory for long.

Server and shuffler run on this package; it depends on uvicorn, and no device imports it.
"""
