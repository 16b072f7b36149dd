"""What a service does for its process before it serves."""

import subprocess
import sys

_CODE = """
import resource
from privateer_core.serving.process import prepare_process
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
prepare_process()
print(resource.getrlimit(resource.RLIMIT_CORE))
"""


def test_a_process_that_crashes_leaves_no_keys_in_a_core_file() -> None:
    process = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    assert process.stdout == "(0, 0)\n"
