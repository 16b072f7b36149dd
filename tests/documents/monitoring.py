"""The alerts as a PrometheusRule, which the Prometheus operator reads."""

from pathlib import Path
from textwrap import indent
from typing import Final

_ALERTS: Final = Path("deploy/prometheus/alerts.yml")
RULES: Final = Path("deploy/kubernetes/monitoring/rules.yaml")
_HEAD: Final = """# Made from deploy/prometheus/alerts.yml: python -m tests.documents monitoring
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: { name: privateer }
spec:
"""


def documents() -> dict[Path, str]:
    """The rules."""
    alerts = _ALERTS.read_text()
    return {RULES: _HEAD + indent(alerts[alerts.index("groups:") :], "  ")}
