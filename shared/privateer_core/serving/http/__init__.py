"""What all services answer alike: endpoints for sealed reports, pages, problems, and their description."""
