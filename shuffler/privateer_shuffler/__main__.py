"""``python -m privateer_shuffler``."""

from privateer_shuffler.app import main

main()
