"""Prio3 for two servers: shares of a vote, and a proof that it is one (draft-irtf-cfrg-vdaf-20)."""
