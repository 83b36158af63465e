"""The documentation is correct: its commands work, its links have targets, and its tables are complete."""

import re
import socket
from pathlib import Path

import pytest

from callboard.bus import errors
from callboard.runtime.settings.config import Config
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.main import COMMANDS
from callboard.surfaces.cli.show import FORMATS
from tests.support.doc_pages import FILES, Block, Ports, Shell, blocks, missing, steps
from tests.support.places import ROOT
from tests.support.workdir import forgotten_modules

README = ROOT / "README.md"
MESSAGES = ROOT / "docs" / "reference" / "messages.md"
"""This page has its own test."""

PAGES = [README, *sorted(path for path in (ROOT / "docs").rglob("*.md") if path != MESSAGES)]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
OTHERS = [
    *(MESSAGES, CONTRIBUTING, ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", ROOT / "deploy" / "README.md"),
    *sorted((ROOT / "examples").rglob("*.md")),
]
"""Pages that only have their links and names checked."""

INSTEAD = {
    # The recipe of the target, without creating an environment first.
    "make demo": "python -m examples.demo",
    # This would run the tests recursively.
    "make test": "",
}

NOT_PERFORMED = {
    "pip install .": "needs an index of packages; see tests/structure/test_installing.py",
    "docker compose -f deploy/compose.yaml up --detach jaeger": "needs Docker",
    "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 make demo": "needs that Jaeger",
    "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 callboard rebuild --spans": "needs that Jaeger",
    "CALLBOARD_ALWAYS_REPLAY=true make test": "runs these tests",
    "make bench": "takes minutes",
    "nats stream backup CB_CALLBOARD backup": "needs the nats command",
    "nats stream restore backup": "needs the nats command",
}
"""Commands in ``sh`` blocks that are not performed, with the reason."""

OWN_SERVERS = (README, ROOT / "docs" / "guide" / "operations.md", ROOT / "docs" / "reference" / "log.md")
"""Pages about the embedded server and its files."""

HOSTS = {"localhost", "127.0.0.1", "spec.sweny.ai", "mwl.dev", "cel.dev", "example.com", "nats", "docs.astral.sh"}
"""The only hosts that pages name in addresses."""


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _blocks(path: Path) -> list[Block]:
    return blocks(path.read_text(encoding="utf-8"))


def _table(path: Path, head: str) -> list[list[str]]:
    """Return the rows, as cells, of the table whose first heading is the given one."""
    text = path.read_text(encoding="utf-8")
    found = re.search(rf"^\| {head} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert found, f"{_name(path)} has no table of {head}"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found[1].splitlines()]


def _quoted(cells: list[str]) -> list[str]:
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]


# -- commands of pages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(block.language == "console" for block in _blocks(page))], ids=_name
)
def test_a_page_is_performed(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if page in OWN_SERVERS:
        request.getfixturevalue("own_servers")
    # A command in this process imports FILE.py under its name, which another page may use too.
    with forgotten_modules(tmp_path), Shell(tmp_path, INSTEAD) as shell:
        if page != README:
            # The workflow and the script of the README are available on every page.
            for block in _blocks(README):
                if block.language == "yaml":
                    shell.write(block)
        for block in _blocks(page):
            if block.language in FILES:
                shell.write(block)
            elif block.language == "console":
                for step in steps(block):
                    shell.perform(step)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_block_is_performed_or_says_why_not(page: Path) -> None:
    for block in _blocks(page):
        assert block.language in (*FILES, "console", "sh", "text", "mermaid", "diff"), block.text
        if block.language in FILES:
            assert block.file, f"a block that is no file:\n{block.text}"
        if block.language == "console":
            assert list(steps(block)), f"a console block without a command:\n{block.text}"
        if block.language == "sh":
            assert {line for line in block.text.splitlines() if line} <= set(NOT_PERFORMED)


def test_every_listed_command_is_on_a_page() -> None:
    shown = "\n".join(block.text for page in PAGES for block in _blocks(page))
    assert [command for command in (*NOT_PERFORMED, *INSTEAD) if command not in shown] == []


def test_the_substitute_for_make_demo_is_its_recipe() -> None:
    recipe = re.search(r"^demo:.*\n\t(.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    assert recipe[1] == f"$(BIN)/{INSTEAD['make demo']}"


def test_the_make_targets_for_contributors_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    output = set(re.findall(r"make ([\w-]+)", " ".join(_quoted([CONTRIBUTING.read_text(encoding="utf-8")]))))
    assert output <= targets
    assert targets - output == {"clean"}


def test_the_files_for_contributors_exist() -> None:
    for name in _quoted([CONTRIBUTING.read_text(encoding="utf-8")]):
        # Files that tests create may not exist yet.
        if "/" in name and not re.search(r"[<>\s]", name) and not name.startswith(".browser/"):
            assert (ROOT / name).exists(), name


def test_expected_lines_must_be_in_order() -> None:
    assert missing(["a 1", "c…e"], "a   1\nb\nc d e\n") is None
    assert missing(["c…e", "a 1"], "a   1\nb\nc d e\n") == "a 1"
    assert missing(["b c"], "a b c d") == "b c"


SERVING = """
```python
# file: serve.py
import socket

with socket.create_server(("127.0.0.1", 8723)) as server:
    print("http://127.0.0.1:8723/", flush=True)
    server.accept()[0].sendall(b"tea")
    server.accept()
```

```console
$ python serve.py &
http://127.0.0.1:8723/
$ cat < /dev/tcp/$(echo 127.0.0.1:8723 | tr : /)
tea
```
"""


def test_a_page_is_performed_although_its_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody, Shell(tmp_path) as shell:
        server, console = blocks(SERVING.replace("8723", str(somebody.getsockname()[1])))
        shell.write(server)
        for step in steps(console):
            shell.perform(step)


def test_only_ports_of_the_page_are_translated() -> None:
    ports = Ports()
    here = ports.done("127.0.0.1:8723").removeprefix("127.0.0.1:")
    assert here != "8723"
    assert ports.said('http://localhost:8723/ ("127.0.0.1", 8723)') == f'http://localhost:{here}/ ("127.0.0.1", {here})'
    assert ports.said("127.0.0.1:4222 127.0.0.1:0 127.0.0.1:…") == "127.0.0.1:4222 127.0.0.1:0 127.0.0.1:…"


# -- links and names ---------------------------------------------------------------------------------------------------


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=_name)
def test_links_have_targets(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.is_relative_to(ROOT), f"{target} leads outside"
        assert path.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in _anchors(path), f"{target}: there is no such heading"


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=_name)
def test_no_page_names_a_machine_or_a_host_of_its_own(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"(?<![\w./])/(?:home|root|tmp|work|usr|opt|var|Users)/[\w.]+", text) == []
    assert set(re.findall(r"https?://([\w.-]+)", text)) <= HOSTS


def test_every_page_is_reachable_from_the_readme() -> None:
    reached: set[Path] = set()
    frontier = [README]
    while frontier:
        page = frontier.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        text = page.read_text(encoding="utf-8")
        frontier += [(page.parent / target).resolve() for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text)]
    assert [_name(page) for page in PAGES if page not in reached] == []


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    named = {
        (index.parent / target).resolve() for target in re.findall(r"\]\(([^)\s#]+\.md)\)", index.read_text("utf-8"))
    }
    assert [_name(page) for page in PAGES if page not in (README, index) and page not in named] == []


def test_the_readme_lists_the_folders() -> None:
    named = {name.strip("/") for name in _quoted([row[0] for row in _table(README, "folder")])}
    there = {path.name for path in ROOT.iterdir() if path.is_dir() and any(path.rglob("*.md")) | any(path.glob("*.py"))}
    assert named == {name for name in there if not name.startswith(".") and not name.endswith(".egg-info")}


# -- tables and lists --------------------------------------------------------------------------------------------------


def test_every_command_is_shown_with_an_example_and_every_format_and_exit_code_named() -> None:
    page = ROOT / "docs" / "reference" / "cli.md"
    commands = [step.command for block in _blocks(page) if block.language == "console" for step in steps(block)]
    shown = {name for command in commands for name in re.findall(r"callboard (\w+)", command)}
    text = page.read_text(encoding="utf-8")
    assert [name for name in COMMANDS if name not in shown] == []
    assert [form for form in FORMATS if f"`{form}`" not in text] == []
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert {int(row[0]) for row in _table(page, "code")} == codes


def test_every_option_is_named() -> None:
    from callboard.surfaces.cli.main import cli

    text = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    context = cli.make_context("callboard", ["runs"])
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        for option in [option for parameter in command.params for option in parameter.opts]:
            if option.startswith("--"):
                assert f"`{option}" in text, f"{name} {option}"


def test_every_setting_is_in_the_table_with_its_variable_and_default() -> None:
    rows = {row[0].strip("`"): row for row in _table(ROOT / "docs" / "reference" / "configuration.md", "setting")}
    assert list(rows) == list(Config.model_fields)
    for (name, value, _source), row in zip(Config.model_validate({}).explain(), rows.values(), strict=True):
        assert row[1] == f"`CALLBOARD_{name.upper()}`"
        assert row[2] == (f"`{value}`" if value else ""), name


def test_every_error_is_in_the_table() -> None:
    source = Path(str(errors.__file__)).read_text(encoding="utf-8")
    codes = re.findall(r"super\(\).__init__\(\s*\"([a-z_]+\.[a-z_]+)\"", source)
    assert len(codes) > 10
    named = _quoted([row[0] for row in _table(ROOT / "docs" / "reference" / "errors.md", "code")])
    assert set(codes) - set(named) == set()


def test_the_glossary_has_each_word_once() -> None:
    words = [row[0] for row in _table(ROOT / "docs" / "reference" / "glossary.md", "word")]
    assert sorted(words) == sorted(set(words)), "a word has two meanings in docs/reference/glossary.md"
