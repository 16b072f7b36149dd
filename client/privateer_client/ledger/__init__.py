"""The stored data of a device: payments, choices, sealed reports, upload tokens and known servers."""
