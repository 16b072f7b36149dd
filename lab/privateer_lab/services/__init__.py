"""Services as processes of this machine, requests of the command line to services, and the demos."""
