"""The actor kernel: bounded mailboxes, restarts within limits, escalation, stopping."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from callboard.actors.actor import Mailbox, MailboxClosed, MailboxFull, Restart, Supervisor
from callboard.testing.virtual_time import VIRTUAL


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


def no_failure(name: str, error: Exception) -> None:
    raise AssertionError(f"{name} failed: {error!r}")


async def test_messages_are_read_in_order() -> None:
    mailbox: Mailbox[int] = Mailbox()
    for number in range(3):
        mailbox.put_nowait(number)
    assert len(mailbox) == 3
    assert [await mailbox.get() for _ in range(3)] == [0, 1, 2]


async def test_a_full_mailbox_refuses_or_makes_wait() -> None:
    mailbox: Mailbox[int] = Mailbox(messages_max=1)
    mailbox.put_nowait(1)
    with pytest.raises(MailboxFull):
        mailbox.put_nowait(2)
    put: list[int] = []
    read: list[int] = []

    async def sender(number: int) -> None:
        await mailbox.put(number)
        put.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sender, 2)
        tasks.start_soon(sender, 3)
        await anyio.sleep(1)
        assert put == []
        read.append(await mailbox.get())
        await anyio.sleep(1)
        assert len(put) == 1
        read += [await mailbox.get(), await mailbox.get()]
    assert sorted(read) == [1, 2, 3]
    assert sorted(put) == [2, 3]


async def test_a_reader_waits_for_a_message() -> None:
    mailbox: Mailbox[str] = Mailbox()
    read: list[str] = []

    async def reader() -> None:
        read.append(await mailbox.get())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader)
        await anyio.sleep(1)
        mailbox.put_nowait("hello")
    assert read == ["hello"]


async def test_a_closed_mailbox_is_read_to_its_end() -> None:
    mailbox: Mailbox[int] = Mailbox(messages_max=1)
    mailbox.put_nowait(1)
    mailbox.close()
    with pytest.raises(MailboxClosed):
        mailbox.put_nowait(2)
    with pytest.raises(MailboxClosed):
        await mailbox.put(2)
    assert await mailbox.get() == 1
    with pytest.raises(MailboxClosed):
        await mailbox.get()


async def test_closing_wakes_reader_and_sender() -> None:
    empty: Mailbox[int] = Mailbox()
    full: Mailbox[int] = Mailbox(messages_max=1)
    full.put_nowait(1)
    ended: list[str] = []

    async def reader() -> None:
        with pytest.raises(MailboxClosed):
            await empty.get()
        ended.append("reader")

    async def sender() -> None:
        with pytest.raises(MailboxClosed):
            await full.put(2)
        ended.append("sender")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader)
        tasks.start_soon(sender)
        await anyio.sleep(1)
        empty.close()
        full.close()
    assert sorted(ended) == ["reader", "sender"]


async def test_leaving_a_supervisor_waits_for_its_actors() -> None:
    done: list[str] = []

    async def body() -> None:
        await anyio.sleep(5)
        done.append("done")

    async with Supervisor(no_failure) as supervisor:
        child = supervisor.spawn("one", body)
        assert not child.has_ended
    assert done == ["done"]
    assert child.has_ended


async def test_a_failed_actor_is_escalated_and_its_siblings_continue() -> None:
    failures: list[tuple[str, str]] = []
    done: list[str] = []

    async def failing() -> None:
        await anyio.lowlevel.checkpoint()
        raise LookupError("broken")

    async def sibling() -> None:
        await anyio.sleep(5)
        done.append("sibling")

    async with Supervisor(lambda name, error: failures.append((name, str(error)))) as supervisor:
        supervisor.spawn("sibling", sibling)
        child = supervisor.spawn("failing", failing)
        await child.wait_ended()
        assert failures == [("failing", "broken")]
    assert done == ["sibling"]


async def test_restarts_are_counted_within_their_window() -> None:
    failures: list[str] = []
    started: list[float] = []

    async def failing() -> None:
        started.append(anyio.current_time())
        raise LookupError("broken")

    restart = Restart(most=2, within_s=60, pause_s=10)
    async with Supervisor(lambda name, _error: failures.append(name)) as supervisor:
        begun = anyio.current_time()
        supervisor.spawn("one", failing, restart)
    assert [round(instant - begun) for instant in started] == [0, 10, 20]
    assert failures == ["one"]


async def test_restarts_that_are_long_ago_do_not_count() -> None:
    failures: list[str] = []
    started: list[int] = []

    async def seldom_failing() -> None:
        started.append(1)
        await anyio.sleep(100)
        if len(started) < 6:
            raise LookupError("broken")

    restart = Restart(most=1, within_s=60, pause_s=1)
    async with Supervisor(lambda name, _error: failures.append(name)) as supervisor:
        supervisor.spawn("one", seldom_failing, restart)
    assert len(started) == 6
    assert failures == []


async def test_stopping_one_and_stopping_all() -> None:
    stopped: list[str] = []

    def body(name: str) -> Any:
        async def sleeping() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                stopped.append(name)

        return sleeping

    async with Supervisor(no_failure) as supervisor:
        children = [supervisor.spawn(name, body(name), Restart(most=9)) for name in ("one", "two", "three")]
        await anyio.sleep(1)
        children[0].stop()
        await children[0].wait_ended()
        assert stopped == ["one"]
        supervisor.stop_all()
    assert sorted(stopped) == ["one", "three", "two"]
    assert all(child.has_ended for child in children)


async def test_a_supervisor_must_be_entered_first() -> None:
    async def body() -> None: ...

    supervisor = Supervisor(no_failure)
    supervisor.stop_all()
    with pytest.raises(RuntimeError, match="entered"):
        supervisor.spawn("one", body)
