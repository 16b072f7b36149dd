"""What a device keeps: what it has paid, choices, sealed reports, upload tokens, and what it knows of servers."""
