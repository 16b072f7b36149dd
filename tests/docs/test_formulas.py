"""The build of the site fails at a formula that KaTeX cannot read, and says where it stands."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.site
ROOT = Path(__file__).parents[2]
GOOD = "# Page\n\nA promise of $e^\\varepsilon$ and one of $\\delta < 1$.\n\n$$\n\\frac{1}{2}\n$$\n"


def build(page: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a site of this one page, as `make site` builds that of the documentation."""
    configuration: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    hooks = [str(ROOT / hook) for hook in configuration["hooks"]]
    site = {"docs_dir": "pages", "site_dir": "site", "nav": ["README.md"], "extra_css": [], "hooks": hooks}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(configuration | site))
    (folder / "pages").mkdir()
    (folder / "pages" / "README.md").write_text(page)
    return subprocess.run(
        [Path(sys.executable).parent / "mkdocs", "build", "--quiet"],
        cwd=folder,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_formulas_are_set(tmp_path: Path) -> None:
    process = build(GOOD, tmp_path)
    assert process.returncode == 0, process.stderr
    text = (tmp_path / "site" / "index.html").read_text()
    assert text.count('<annotation encoding="application/x-tex">') == 3


@pytest.mark.parametrize(
    ("planted", "line", "message"),
    [
        ("At most $e^{2$ of them.", 9, "Expected '}'"),
        ("At most $\\oddsratio{2}$ of them.", 9, "Undefined control sequence: \\oddsratio"),
        ("Here\n\n$$\n\\frac{1}{2\n$$", 12, "Unexpected end of input in a macro argument"),
        ("Again $e^\\varepsilon$, then\n$\\left( x$.", 10, "Expected '\\right'"),
    ],
)
def test_a_planted_wrong_formula_fails_the_build_with_its_page_and_line(
    planted: str, line: int, message: str, tmp_path: Path
) -> None:
    process = build(f"{GOOD}\n{planted}\n", tmp_path)
    assert process.returncode != 0
    assert f"README.md:{line}: KaTeX parse error: {message}" in process.stdout + process.stderr
