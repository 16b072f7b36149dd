"""Stores of services: files of their own, or a PostgreSQL database that replicas share."""
