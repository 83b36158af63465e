"""A check of the English of the repository: `python -m tests.maintenance.wording` counts phrases that engineers do not
use.

Each part of the repository has a limit in phrases per 10,000 words. A part that exceeds its limit fails `make lint`; a
part that has become better must have its limit lowered. ``--list PATH`` prints each place below a path.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT

LIMITS = {
    "lib": 20,
    "bus": 15,
    "actors": 12,
    "languages": 30,
    "adapters": 12,
    "projections": 15,
    "runtime": 12,
    "features": 15,
    "service": 20,
    "surfaces": 22,
    "callboard": 20,
    "tests": 12,
    "benchmarks": 10,
    "examples": 10,
    "page": 12,
    "docs": 12,
    "CHANGELOG.md": 10,
}
"""Phrases per 10,000 words that each part may have."""

SLACK = 10
"""How far below its limit a part may be before the limit must be lowered."""

PHRASES = (
    r"\bwhoever\b|\bthose who\b|\bwhom\b",
    r"(?:^|[.:;] )who (?:is|has|does|may|asks|comes|goes|starts|connects|follows)\b",
    r"(?:^|[.:;] )what (?:is|are|has|had|it|a|an|the|one|they|was|were|does|no)\b",
    r"\b(?:of|to|for) what\b|\bwhat (?:is|was|has been|had been) [a-z]+ed\b",
    r"\b(?:is|are|was|were|be) (?:no|none)\b(?! longer| more)",
    r"\bstands?\b|\bstood\b",
    r"\btells?\b|\btold\b|\btelling\b",
    r"\b(?:comes?|came) (?:to|of|upon|about)\b|\bamounts? to\b|\bbec(?:ame|omes) of\b",
    r"\banew\b|\bmeanwhile\b|\bany more\b|\bfor good\b|\bat hand\b|\bfor ever\b",
    r"\b(?:no|some|any)body(?:'s)?\b",
    r"\bso (?:many|much|long|few)\b",
    r"\bbehind\b",
    r"\bg(?:o|oes|oing|one) on\b|\bwent on\b",
    r"\bof (?:its|their|our|one's) own\b|\bof (?:ours|theirs)\b",
    r"\bby (?:itself|themselves|oneself)\b",
)
"""Phrases, most of them as a dictionary translates them from another language."""

CLAUSES = re.compile(
    r"^test_(what|who|whoever|where|as)_"
    r"|_(who|whoever|whom|nobody|somebody|stands?|stood|told|tells|anew|is_no|are_no|is_none|behind|goes_on|go_on|comes?_to)(_|$)"
)
"""Names of tests that are a clause or a riddle, and do not state what the subject does."""

CLAUSES_MAX = 20

_ANY = re.compile("|".join(PHRASES), re.IGNORECASE | re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_TEXT_OF_PAGE = re.compile(r'"([^"\\]{8,})"|\'([^\'\\]{8,})\'|`([^`\\]{8,})`|>([^<>{}]{8,})<')
_WORDS_OF_MESSAGES = re.compile(r" \w+ ")

Place = tuple[int, str]
"""A line and the text that begins there."""


def prose_of_python(source: str) -> Iterator[Place]:
    """Yield docstrings, comments, and every string that has the form of a sentence."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if _WORDS_OF_MESSAGES.search(text):
                yield node.lineno, text
            case _:
                pass
    yield from _comments(source)


def prose_of_test(source: str) -> Iterator[Place]:
    """Yield docstrings and comments. Other strings of tests are data: definitions, prompts, answers."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
            case _:
                pass
    yield from _comments(source)


def _comments(source: str) -> Iterator[Place]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def prose_of_markdown(source: str) -> Iterator[Place]:
    """Yield the lines outside of code."""
    fenced = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, _CODE.sub("X", line)


def prose_of_page(source: str) -> Iterator[Place]:
    """Yield the texts of a script or of HTML."""
    for number, line in enumerate(source.splitlines(), 1):
        for found in _TEXT_OF_PAGE.finditer(line):
            text = next(group for group in found.groups() if group)
            if " " in text:
                yield number, text


READERS = {".py": prose_of_python, ".md": prose_of_markdown, ".js": prose_of_page, ".html": prose_of_page}


def part_of(path: Path) -> str:
    """Return the part that a file counts for."""
    if path.suffix in (".js", ".html"):
        return "page"
    return "docs" if path.suffix == ".md" and path.name != "CHANGELOG.md" else path.parts[0]


def files() -> list[Path]:
    """Return the files with prose that git knows, relative to the root."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [Path(name) for name in names.split("\0") if name]
    return [path for path in paths if path.suffix in READERS and part_of(path) in LIMITS and (ROOT / path).is_file()]


def places(path: Path) -> Iterator[Place]:
    """Yield the prose of a file."""
    read = prose_of_test if part_of(path) == "tests" and path.suffix == ".py" else READERS[path.suffix]
    return read((ROOT / path).read_text(encoding="utf-8"))


def rates() -> dict[str, int]:
    """Return the phrases per 10,000 words of each part."""
    words, phrases = Counter[str](), Counter[str]()
    for path in files():
        for _, text in places(path):
            words[part_of(path)] += len(text.split())
            phrases[part_of(path)] += len(_ANY.findall(text))
    return {part: round(10_000 * phrases[part] / words[part]) for part in words}


def clauses() -> Iterator[tuple[Path, int, str]]:
    """Yield the places of tests whose name is a clause."""
    for path in files():
        if part_of(path) == "tests" and path.suffix == ".py":
            for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
                match node:
                    case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                        if name.startswith("test_") and CLAUSES.search(name):
                            yield path, node.lineno, name
                    case _:
                        pass


def check() -> list[str]:
    """Return what is wrong: parts above their limit, and limits that are too high."""
    found: list[str] = []
    for part, rate in sorted(rates().items()):
        limit = LIMITS[part]
        if rate > limit:
            found.append(f"{part}: {rate} phrases per 10,000 words, at most {limit}; --list {part} shows them")
        elif rate < limit - SLACK:
            found.append(
                f"{part}: {rate} phrases per 10,000 words: lower its limit of {limit} in tests/maintenance/wording.py"
            )
    if len(named := list(clauses())) > CLAUSES_MAX:
        found.append(f"{len(named)} names of tests are clauses, at most {CLAUSES_MAX}; --list tests shows them")
    return found


def main(arguments: list[str]) -> int:
    """Run the check, or list the places below a path."""
    if arguments[:1] == ["--list"]:
        for path in files():
            if str(path).startswith(arguments[1]) or part_of(path) == arguments[1]:
                for number, text in places(path):
                    for found in _ANY.finditer(text):
                        print(f"{path}:{number}: {found[0]!r} in: {' '.join(text.split())[:160]}")
        for path, number, name in clauses():
            if str(path).startswith(arguments[1]):
                print(f"{path}:{number}: the name {name} is a clause")
        return 0
    problems = check()
    print("\n".join(problems) if problems else "wording: every part is within its limit")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
