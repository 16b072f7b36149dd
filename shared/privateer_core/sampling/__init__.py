"""Random numbers of exact or certified distributions, drawn from the words of an entropy source."""
