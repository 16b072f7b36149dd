"""Recipes for web frameworks serve people in the frameworks, with running services."""

import io
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from privateer_lab.services.processes import Services
from tests.interop.programs import PYTHON, ROOT

pytestmark = pytest.mark.interop
PAGE = (ROOT / "docs" / "sdk" / "people.md").read_text()
ARMS = {"left", "middle", "right"}
CONTEXT = {"x1": 0.3, "x2": 0.9}
PEOPLE = [f"user-{number}" for number in range(20)]
MODULE = "recipe"


@pytest.fixture
def load_recipe(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], ModuleType]]:
    """Loads the recipe of a framework as a module; a machine that is busy may take longer than a page waits."""
    monkeypatch.chdir(tmp_path)
    packages = [str(path) for path in PYTHON.parents[1].glob("lib/python*/site-packages")]
    monkeypatch.setattr(sys, "path", [*sys.path, *packages])  # the frameworks alone come from there
    values = {"http://127.0.0.1:8000": services.server, "http://127.0.0.1:8001": services.shuffler}
    values['default="middle"'] = 'default="middle", within=60.0'
    clients = []

    def load(framework: str) -> ModuleType:
        (code,) = re.findall(rf"## {framework}\n+```python\n(.*?)```", PAGE, re.DOTALL)
        for old, new in values.items():
            assert old in code
            code = code.replace(old, new)
        module = ModuleType(MODULE)
        monkeypatch.setitem(sys.modules, MODULE, module)
        exec(code, module.__dict__)
        clients.append(module.client)
        return module

    yield load
    for client in clients:
        client.close()


def serve_people(get: Callable[[str], Any], post: Callable[[str], Any]) -> None:
    """Have each person visit twice and buy twice."""
    arms = {person: [get(f"/offer/{person}")["arm"] for _ in "ab"] for person in PEOPLE}
    assert all(first == second for first, second in arms.values())
    assert len({first for first, _ in arms.values()} & ARMS) > 1  # all alike by chance: 6e-10
    outcomes = Counter(post(f"/bought/{person}")["outcome"] for person in PEOPLE for _ in "ab")
    assert outcomes == {"accepted": len(PEOPLE), "already-reported": len(PEOPLE)}


def test_the_recipe_for_flask_serves_people(load_recipe: Callable[[str], ModuleType]) -> None:
    app = load_recipe("Flask").app
    web = app.test_client()
    serve_people(lambda path: web.get(path, query_string=CONTEXT).json, lambda path: web.post(path).json)
    assert app.test_cli_runner().invoke(args=["flush"]).output == "{}\n"


def test_the_recipe_for_django_serves_people(load_recipe: Callable[[str], ModuleType]) -> None:
    recipe = load_recipe("Django")
    import django.conf
    import django.test

    django.conf.settings.configure(ROOT_URLCONF=MODULE, ALLOWED_HOSTS=["testserver"])
    django.setup()
    web = django.test.Client()
    serve_people(lambda path: web.get(path, CONTEXT).json(), lambda path: web.post(path).json())
    recipe.Command(stdout=(output := io.StringIO())).handle()
    assert output.getvalue() == "{}\n"
