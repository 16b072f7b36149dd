"""Attacks along the wire: what the network, answers and logs show."""
