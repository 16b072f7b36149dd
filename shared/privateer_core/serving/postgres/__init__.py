"""What services share that keep data in PostgreSQL: connections, migrations, leases, a key that no database has.

Only a service that is told of a database imports it.
"""
