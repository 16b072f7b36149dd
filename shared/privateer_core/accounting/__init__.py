"""What privacy costs: events describe what happens to a person's record, and the accountant computes the price."""
