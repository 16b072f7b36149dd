"""Paper 1's figures, and the growth of regret with participants and epsilon, beside its theorems."""
