"""Selection of features that an experiment can afford: their information against the cost of noise."""
