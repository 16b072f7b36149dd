"""Expected results of an experiment and of its variants, within seconds."""
