"""Privacy accounting: events describe what happens to a participant's record; the accountant computes their cost."""
