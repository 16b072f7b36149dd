"""``python -m privateer_issuer``."""

from privateer_issuer.app import main

main()
