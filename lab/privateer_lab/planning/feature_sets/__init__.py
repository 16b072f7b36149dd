"""Which features an experiment can afford: what each tells, and what noise costs under the promise."""
