"""Figures and tables of the papers, made again; `registry` has them all by name."""
