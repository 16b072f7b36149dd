"""The functions of `privateer_lab` for notebooks, a module for each function and its result."""
