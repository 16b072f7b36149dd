"""Formulas of the documentation site: a hook of MkDocs that has KaTeX set them while the site is built.

The site serves KaTeX's style sheet and fonts itself, and no script: a page with formulas is HTML and MathML. Pages
without formulas load nothing. A formula that KaTeX cannot read fails the build, with its page and line.
"""

import html
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

_PACKAGE: Final = Path(__file__).parents[1] / "requirements" / "katex" / "node_modules" / "katex"
_FOLDER: Final = "assets/katex"
_FORMULA: Final = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_SET: Final = """
const katex = require(process.argv[1]);
const formulas = JSON.parse(require("fs").readFileSync(0, "utf8"));
const set = ([tex, displayMode]) => {
  try {
    return { html: katex.renderToString(tex, { displayMode, strict: "error" }) };
  } catch (error) {
    return { error: error.message };
  }
};
console.log(JSON.stringify(formulas.map(set)));
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the style sheet and the fonts."""
    dist = _PACKAGE / "dist"
    if not dist.is_dir():
        raise PluginError("KaTeX is missing: make site installs it (npm ci in requirements/katex)")
    for path in (dist / "katex.min.css", *sorted(dist.glob("fonts/*.woff2"))):
        name = f"{_FOLDER}/{path.relative_to(dist)}"
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_content(text: str, page: Any, **_: Any) -> str:
    """Set the formulas of a page."""
    found = [(html.unescape(tex), opening == "[") for _, opening, tex in _FORMULA.findall(text)]
    if not found:
        return text
    page.meta["formulas"] = True
    done = subprocess.run(
        ["node", "-e", _SET, str(_PACKAGE)], input=json.dumps(found), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PluginError(f"{page.file.src_uri}: {done.stderr}")
    made = json.loads(done.stdout)
    lines = _lines(Path(page.file.abs_src_path).read_text(encoding="utf-8"), [tex for tex, _ in found])
    wrong = [
        f"{page.file.src_uri}:{line}: {one['error']}" for one, line in zip(made, lines, strict=True) if "error" in one
    ]
    if wrong:
        raise PluginError("\n".join(wrong))
    each = iter(made)
    return _FORMULA.sub(lambda one: f"<{one[1]} class='formula'>{next(each)['html']}</{one[1]}>", text)


def _lines(source: str, formulas: list[str]) -> Iterator[int]:
    """Yield the line in which each formula begins; they follow each other as in the page."""
    place = 0
    for tex in formulas:
        place = max(place, source.find(tex.strip(), place))
        yield source.count("\n", 0, place) + 1
        place += 1


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Have a page with formulas load the style sheet."""
    if not page.meta.get("formulas"):
        return output
    sheet = get_relative_url(f"{_FOLDER}/katex.min.css", page.url)
    return output.replace("</head>", f'<link rel="stylesheet" href="{sheet}"></head>', 1)
