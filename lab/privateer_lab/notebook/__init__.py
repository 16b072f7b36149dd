"""The functions of `privateer_lab` for notebooks, a file for each of them and what it returns."""
