"""The server: opens reports, learns, and publishes the policy."""
