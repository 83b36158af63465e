"""A language of an installed package is used like those that ship with Callboard."""

import json
from pathlib import Path

import pytest

from callboard.surfaces.cli import exits
from tests.support.workdir import Workdir

LANGUAGE = '''
"""Recipes: a line per step, `ask TEXT` for a model, `say TEXT` for what is said; a recipe begins with `recipe NAME`."""

from callboard.bus.effects import ModelRequest, user
from callboard.bus.events import OutlineEdge, OutlineNode, Outline, Problem
from callboard.languages.authoring import Authoring
from callboard.languages.kit import Kit
from callboard.languages.language import End, Failed
from callboard.languages.plan import Definition, Needs, Plan


def steps(document):
    return [line.partition(" ")[::2] for line in document]


def outline(document):
    ids = [f"{number}-{word}" for number, (word, _) in enumerate(steps(document), 1)]
    nodes = [OutlineNode(id, id) for id in ids]
    return Outline(nodes, [OutlineEdge(a, b) for a, b in zip(ids, ids[1:])])


class Recipes:
    name = "recipe"
    rules = 0

    def parse(self, source):
        first, *lines = [line for line in source.splitlines() if line.strip()]
        problems = [
            Problem("RECIPE_WORD", f"nobody knows {line!r}", line=number, expected="ask or say")
            for number, line in enumerate(source.splitlines(), 1)
            if line.strip() and line.split()[0] not in ("recipe", "ask", "say")
        ]
        return problems or Definition("recipe", first.split()[1], source, source.encode(), lines)

    def admit(self, definition, start):
        asks = any(word == "ask" for word, _ in steps(definition.document))
        return Plan(definition, start.input, {}, {}, outline(definition.document), Needs(model=asks))

    async def interpret(self, plan, stage):
        said = ""
        for number, (word, text) in enumerate(steps(plan.definition.document), 1):
            node = stage.enter(f"{number}-{word}")
            said = text
            if word == "ask":
                reply = await node.turn("turn", ModelRequest(messages=[user(text)]))
                if isinstance(reply, Failed):
                    node.exit("failed", error=reply.error)
                    return End("failed", error=reply.error)
                said = reply.value.text
            node.exit("ok", said)
        return End("completed", said)


LANGUAGE = Recipes()
AUTHORING = Authoring(outline=outline)
KIT = Kit(
    "recipe", __name__, lambda _fields, source: source.startswith("recipe "), "lines, the first of them recipe NAME",
    authoring_module=__name__,
)
'''

RECIPE = "recipe tea\nask What is first?\nsay Serve.\n"


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workdir:
    """Install the language."""
    site = tmp_path / "site"
    about = site / "recipes-1.dist-info"
    about.mkdir(parents=True)
    (site / "recipes.py").write_text(LANGUAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: recipes\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[callboard.languages]\nrecipe = recipes:KIT\n")
    workdir = Workdir(tmp_path / "work")
    monkeypatch.setenv("PYTHONPATH", str(site))
    workdir.write("tea.recipe", RECIPE)
    workdir.write("script.json", {"default": {"text": "Boil water."}})
    return workdir


def test_an_installed_language_is_run_like_those_that_ship(workdir: Workdir) -> None:
    done = workdir.call("run", "tea.recipe", "--script", "script.json", "--run-id", "r", "--json")
    assert done.returncode == exits.OK, done.stderr
    assert json.loads(done.stdout)["output"] == "Serve."
    assert json.loads(workdir.call("runs", "--json").stdout)[0]["definition"] == "tea"
    assert "1-ask" in workdir.call("trace", "r").stdout
    assert workdir.call("replay", "r").returncode == exits.OK
    drawn = workdir.call("diagram", "tea.recipe", "--format", "mermaid")
    assert "2-say" in drawn.stdout, drawn.stderr


def test_texts_of_an_installed_language_are_detected_and_validated(workdir: Workdir) -> None:
    assert workdir.call("validate", "tea.recipe").returncode == exits.OK
    workdir.write("bad.recipe", RECIPE + "stir\n")
    checked = workdir.call("validate", "bad.recipe")
    assert checked.returncode == exits.FAILED
    assert "RECIPE_WORD" in checked.stdout
    workdir.write("none.txt", "nobody: knows")
    assert "recipe: lines, the first of them recipe NAME" in workdir.call("validate", "none.txt").stdout
