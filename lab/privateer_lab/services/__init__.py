"""The services of this machine, what the command line asks services, and the demos."""
