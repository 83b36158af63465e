"""Which worker executes the runs of an entry point, by the code that each worker reports."""

import pytest

from callboard.runtime.cluster.code_hosts import SHORT, CodeHosts

OLD, NEW = "a" * 64, "b" * 64
MINE = {"shop:order": [OLD]}
LIVE = {"here", "there", "third"}


def hosts(**others: dict[str, list[str]]) -> CodeHosts:
    found = CodeHosts("here", lambda: MINE)
    for worker, entries in others.items():
        found.report(worker, CodeHosts(worker, lambda entries=entries: entries).mine())
    return found


@pytest.mark.parametrize(
    ("others", "entry", "digest", "home"),
    [
        ({}, "shop:order", OLD, "here"),
        ({}, "shop:order", NEW, "here"),
        ({}, "shop:refund", NEW, ""),
        ({"there": {"shop:order": [NEW]}}, "shop:order", OLD, "here"),
        ({"there": {"shop:order": [NEW]}}, "shop:order", NEW, "there"),
        ({"there": {"shop:refund": [OLD]}}, "shop:refund", NEW, "there"),
        ({"there": {"shop:refund": [OLD]}, "third": {"shop:refund": [OLD, NEW]}}, "shop:refund", NEW, "third"),
        ({"gone": {"shop:refund": [OLD]}}, "shop:refund", OLD, ""),
    ],
)
def test_a_worker_with_the_same_digest_is_preferred_and_then_this_worker(
    others: dict[str, dict[str, list[str]]], entry: str, digest: str, home: str
) -> None:
    assert hosts(**others).home(entry, digest, LIVE) == home


def test_the_last_worker_with_an_entry_point_is_remembered() -> None:
    found = hosts(there={"shop:refund": [OLD]})
    assert found.differ
    found.forget("there")
    assert (found.differ, found.last("shop:refund"), found.last("shop:gift")) == (False, "there", "")


def test_only_a_report_with_other_digests_is_a_change() -> None:
    found = hosts()
    code = {"shop:order": [OLD[:SHORT]]}
    assert [found.report("there", code), found.report("there", code), found.report("there", {})] == [True, False, True]
