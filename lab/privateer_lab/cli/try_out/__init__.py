"""Commands that try an experiment out: a draft of its spec, a plan, and simulated people."""
