"""Where services keep data: files of their own, or a PostgreSQL database that replicas share."""
