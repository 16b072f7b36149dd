"""HTTP of all services: endpoints for sealed reports, pages, problems, and their description."""
