"""Bounds on the load that strangers cause: connections, rates, memory, and shares of a processor."""
