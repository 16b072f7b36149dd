"""Upload tokens: what attests a device, keys, blind signatures, and tokens."""
