"""The manifests of Kubernetes fit the schemas of its objects, and the base of kustomize has all of them."""

from pathlib import Path

import pytest
import yaml

from tests.interop.programs import PYTHON, ROOT, run

pytestmark = pytest.mark.interop
FOLDER = ROOT / "deploy" / "kubernetes"
VALIDATE = PYTHON.with_name("kubernetes-validate")


def test_manifests_fit_the_schemas(tmp_path: Path) -> None:
    base = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(base["resources"]) == files
    run([VALIDATE, "--strict", *(FOLDER / name for name in sorted(files))], tmp_path)
    images = {image["name"] for image in base["images"]}
    manifests = "".join((FOLDER / name).read_text() for name in files)
    used = {line.split("image:")[1].strip().split(":")[0] for line in manifests.splitlines() if " image:" in line}
    assert used == images


def test_a_field_that_kubernetes_does_not_know_is_refused(tmp_path: Path) -> None:
    """Planted: a word with a slip."""
    text = (FOLDER / "server.yaml").read_text()
    assert "readinessProbe" in text
    (tmp_path / "server.yaml").write_text(text.replace("readinessProbe", "readynessProbe"))
    with pytest.raises(AssertionError, match="readynessProbe"):
        run([VALIDATE, "--strict", tmp_path / "server.yaml"], tmp_path)
