"""The audit: attacks on the product's own claims, through the code that runs on devices, shuffler and server."""
