"""What the server must not forget."""
