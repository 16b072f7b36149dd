"""Paper 1's figures, and regret as it grows with people and promises, beside its theorems."""
