"""``privateer demo --web`` as a person starts it: it says where the page is, serves it, and stops when told."""

import re
import signal
import subprocess
import sys

import httpx

_SERVED = ("/", "/page.mjs", "/style.css", "/icon.svg", "/demo.json", "/sdk/index.js", "/sdk/privacy/curves.js")


def _started() -> tuple[subprocess.Popen[str], str]:
    code = "import sys; from privateer_lab.__main__ import main; sys.argv = ['privateer', 'demo', '--web']; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(r"http://127\.0\.0\.1:\d+/", line):
            return process, match[0]
    raise AssertionError(f"it ended with code {process.wait()}")


def test_the_web_demo_serves_its_page_under_a_strict_policy_and_stops() -> None:
    process, page = _started()
    try:
        for path in _SERVED:
            answer = httpx.get(page.rstrip("/") + path)
            assert answer.status_code == 200, path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        for path in ("/nowhere", "/../site.py", "/sdk/../../site.py", "/sdk/%2e%2e/package.json"):
            assert httpx.get(page.rstrip("/") + path).status_code == 404
        facts = httpx.get(f"{page}demo.json").json()
        origin = {"origin": page.rstrip("/")}
        answer = httpx.get(f"{facts['server']}/experiments/{facts['experiment']}", headers=origin)
        assert answer.headers["access-control-allow-origin"] == origin["origin"]
    finally:
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0, rest
    assert "Traceback" not in rest
