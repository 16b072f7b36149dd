"""What follows from what a learner found: rules for whom, and the headline. Functions of public data alone."""
