"""The structured log: one form for our lines and the libraries', marks of run and node, and nothing on stdout."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import structlog

from callboard.bus.log.private_logging import content_guard, omit_content
from callboard.runtime.settings import logs


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    logs.unconfigure()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_log_lines_have_their_run_and_node_also_in_tasks() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    log = structlog.get_logger("callboard.somewhere")

    async def work() -> None:
        log.info("working", k=1)

    with logs.bound(run="R1"):
        with logs.bound(node="a/b"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
        log.info("between")
    log.info("outside")

    working, between, outside = lines(stream)
    assert (working["event"], working["run"], working["node"], working["k"]) == ("working", "R1", "a/b", 1)
    assert working["level"] == "info"
    assert working["logger"] == "callboard.somewhere"
    assert between["run"] == "R1"
    assert "node" not in between
    assert "run" not in outside


def test_log_lines_of_libraries_have_the_same_format() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    with logs.bound(run="R2"):
        logging.getLogger("nats.aio.client").error("nats: %s", "broken")
        logging.getLogger("httpx").info("chatter")
        logging.getLogger("mcp.client").warning("hm")
    assert [(line["event"], line["logger"], line["level"], line["run"]) for line in lines(stream)] == [
        ("nats: broken", "nats.aio.client", "error", "R2"),
        ("hm", "mcp.client", "warning", "R2"),
    ]


def test_the_level_applies_to_all_and_debug_includes_libraries() -> None:
    stream = io.StringIO()
    logs.configure("warning", "json", stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("other").info("quiet")
    assert stream.getvalue() == ""
    logs.configure("debug", "json", stream)
    logging.getLogger("httpx").info("chatter")
    assert [line["event"] for line in lines(stream)] == ["chatter"]


def test_a_second_configuration_does_not_duplicate_lines() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure("info", "json", first)
    logs.configure("info", "json", second)
    structlog.get_logger().info("once")
    assert first.getvalue() == ""
    assert len(lines(second)) == 1


@pytest.mark.parametrize("format", ["json", "console"])
def test_an_exception_keeps_its_traceback_and_stdout_stays_clean(
    format: logs.Format, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("info", format)
    try:
        raise ValueError("the cause")
    except ValueError:
        structlog.get_logger().exception("failed", value=object)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" in captured.err
    assert "the cause" in captured.err


async def test_no_content_of_an_encrypted_run_is_logged() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    ours, theirs = structlog.get_logger("callboard.somewhere"), logging.getLogger("mcp.client")

    async def fail() -> None:
        name = "".join(["A", "da"])  # so that the source in a traceback does not contain it
        try:
            raise ValueError(name)
        except ValueError as error:
            ours.exception("it failed", run="r1", error=str(error), why="the log does not answer")
            ours.error("it failed", exc_info=error)
            theirs.exception("no JSON: %s", name, extra={"said": name})

    with content_guard():
        await fail()
        before = stream.getvalue()
        stream.seek(0)
        stream.truncate()
        async with anyio.create_task_group() as tasks:
            omit_content()
            tasks.start_soon(fail)
    told = lines(stream)
    assert "Ada" in before
    assert "Ada" not in stream.getvalue()
    assert [line["event"] for line in told] == ["it failed", "it failed", "(encrypted)"]
    assert (told[0]["run"], told[0]["why"]) == ("r1", "the log does not answer")
    for line in told:
        assert "ValueError: (encrypted)" in line["exception"]
        assert "in fail" in line["exception"]
