"""Planning before anybody is asked for data: a draft of a spec, plans, sweeps."""
