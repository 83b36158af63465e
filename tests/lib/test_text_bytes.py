"""Texts from outside are read alike from files, standard input, arguments, settings and messages."""

import codecs
import io
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

import callboard
from callboard.actors.prompts import PromptLibraries
from callboard.actors.sources import resolve
from callboard.bus.errors import ConfigInvalid
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.text_bytes import argument_text, decode_text
from callboard.runtime.settings.config import load
from callboard.service.files.local_files import text_of
from callboard.service.files.start_messages import input_of
from callboard.surfaces.cli.tell import _parse_value  # pyright: ignore[reportPrivateUsage]

TEXT = "Grüße, Ada.\nEnd."

Entry = Callable[[bytes, Path, pytest.MonkeyPatch], str]
"""Passes the bytes of a text in by one way, and returns the text that arrives."""


def by_definition(data: bytes, folder: Path, _patch: pytest.MonkeyPatch) -> str:
    (folder / "a.md").write_bytes(data)
    return text_of(folder / "a.md")


def by_prompt(data: bytes, folder: Path, _patch: pytest.MonkeyPatch) -> str:
    (folder / "a.md").write_bytes(data)
    return anyio.run(PromptLibraries([folder]).resolve, {"scheme": "library", "identifier": "a"})


def by_source(data: bytes, folder: Path, _patch: pytest.MonkeyPatch) -> str:
    (folder / "a.md").write_bytes(data)
    return anyio.run(resolve, {"file": "a.md"}, {}, folder)["content"]


def by_argument(data: bytes, _folder: Path, _patch: pytest.MonkeyPatch) -> str:
    return argument_text(data.decode("utf-8", "surrogateescape"))


ENTRIES: list[Entry] = [by_definition, by_prompt, by_source, by_argument]


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        codecs.BOM_UTF8 + TEXT.encode(),
        TEXT.replace("\n", "\r\n").encode(),
        codecs.BOM_UTF8 + TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r").encode(),
    ],
)
def test_byte_order_marks_and_line_ends_are_normalised(
    entry: Entry, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert entry(data, tmp_path, monkeypatch) == TEXT


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (TEXT.encode("utf-16"), "UTF-16, not UTF-8"),
        (codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"), "UTF-32, not UTF-8"),
        (b"a\nb\xff", r"byte 0xff in line 2"),
    ],
)
def test_text_that_is_not_utf_8_is_refused_with_the_reason(
    entry: Entry, data: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception, match=reason):
        entry(data, tmp_path, monkeypatch)


JSON = '{"who": "Grüße"}\n'


def input_file(data: bytes, folder: Path, _patch: pytest.MonkeyPatch) -> object:
    (folder / "i.json").write_bytes(data)
    return input_of(f"@{folder / 'i.json'}")


def standard_input(data: bytes, _folder: Path, patch: pytest.MonkeyPatch) -> object:
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "ascii", "surrogateescape"))
    return input_of("-")


def argument(data: bytes, _folder: Path, _patch: pytest.MonkeyPatch) -> object:
    return input_of(data.decode("utf-8", "surrogateescape"))


def answer(data: bytes, _folder: Path, _patch: pytest.MonkeyPatch) -> object:
    return _parse_value(data.decode("utf-8", "surrogateescape"))


def message(data: bytes, _folder: Path, _patch: pytest.MonkeyPatch) -> object:
    return decode_json(data)


VALUES = [input_file, standard_input, argument, answer, message]


@pytest.mark.parametrize("entry", VALUES)
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_values_are_read_with_and_without_a_mark(
    entry: Callable[[bytes, Path, pytest.MonkeyPatch], object],
    mark: bytes,
    end: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert entry(mark + JSON.strip().encode() + end.encode(), tmp_path, monkeypatch) == {"who": "Grüße"}


@pytest.mark.parametrize("entry", VALUES)
@pytest.mark.parametrize("data", [b'{"who": "A\xff"}', JSON.encode("utf-16")])
def test_values_that_are_not_utf_8_are_refused(
    entry: Callable[[bytes, Path, pytest.MonkeyPatch], object],
    data: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(Exception, match=r"UTF-(8|16)|malformed|NUL"):
        entry(data, tmp_path, monkeypatch)


def test_a_message_in_utf_16_is_refused_with_the_reason() -> None:
    with pytest.raises(JSON_ERRORS, match="UTF-16, not UTF-8"):
        decode_json(JSON.encode("utf-16"))


@pytest.mark.parametrize("data", [b"%s", codecs.BOM_UTF8 + b"%s", b"%s\r\n"])
def test_settings_are_read_with_marks_and_line_ends(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_bytes(data % b'tenant = "acme"')
    assert load(env={}, cwd=tmp_path).tenant == "acme"


def test_settings_that_are_not_utf_8_are_named(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_bytes('tenant = "acme"'.encode("utf-16"))
    with pytest.raises(ConfigInvalid, match="UTF-16, not UTF-8"):
        load(env={}, cwd=tmp_path)
    with pytest.raises(ConfigInvalid, match="CALLBOARD_TENANT"):
        load(env={"CALLBOARD_TENANT": "a\udcff"}, cwd=tmp_path / "other")


ROOT = Path(callboard.__file__).parent

OWN_FILES = {
    "bus/nats/credentials.py": "keys and certificates, which their programs read",
    "bus/nats/nkeys.py": "keys of users in the format of their programs",
    "bus/nats/server/data_directory.py": "files that Callboard has written",
    "bus/prices.py": "a file of the package",
    "features/access/keyring.py": "a key in ASCII",
    "languages/graph/node_specs.py": "files of the package",
    "languages/skills/shipped.py": "files of the package",
    "lib/control_group.py": "files of the kernel",
    "lib/processes.py": "files of the kernel",
    "runtime/hosting/code_loader.py": "Python reads code by its own rules",
    "runtime/hosting/kept_code.py": "likewise",
    "service/files/templates.py": "files of the package",
    "service/operations/doctor/growth.py": "the table of mounts",
    "surfaces/cli/page.py": "a file that Callboard has written",
}
"""Modules that read files without `callboard.lib.text_bytes.read_text`, with the reason."""


def test_files_of_users_are_read_by_read_text() -> None:
    modules = {path.relative_to(ROOT).as_posix(): path for path in ROOT.glob("*/**/*.py")}
    found = {
        name
        for name, path in modules.items()
        if "/templates/" not in name and ".read_text(" in path.read_text(encoding="utf-8")
    }
    assert found <= OWN_FILES.keys(), "read files of users by `callboard.lib.text_bytes.read_text`"


@pytest.mark.parametrize("entry", [by_prompt, by_source])
def test_texts_for_models_contain_no_nul(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (b"a\nb\0", "a\nb".encode("utf-16-le")):
        with pytest.raises(Exception, match="NUL in line"):
            entry(data, tmp_path, monkeypatch)
    with pytest.raises(Exception, match="NUL in line 1"):
        anyio.run(resolve, {"file": "a.md"}, {"a.md": "a\0"}, None)


def test_lone_carriage_returns_are_line_ends() -> None:
    assert decode_text(b"a\rb\r\nc\n") == "a\nb\nc\n"
