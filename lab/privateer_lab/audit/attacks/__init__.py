"""Attacks that know how an algorithm works inside, one module an algorithm; most algorithms need none."""
