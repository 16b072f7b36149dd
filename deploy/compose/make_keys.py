"""Makes the key files that replicas share, unless they are there: 32 bytes; keys that sign are in hexadecimal."""

import os
import sys
from pathlib import Path

folder = Path(sys.argv[1])
for name in sys.argv[2:]:
    raw = os.urandom(32)
    try:
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        continue
    os.write(file, raw if name == "store.key" else raw.hex().encode())
    os.fsync(file)
    os.close(file)
