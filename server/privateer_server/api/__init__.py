"""HTTP: endpoints for reports and batches (plain ASGI), and control routes (FastAPI)."""
