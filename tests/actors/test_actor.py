"""The actor kernel: restarts within limits, escalation, stopping."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from callboard.actors.actor import Child, Restart, Supervisor
from callboard.testing.virtual_time import VIRTUAL


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


def no_failure(name: str, error: Exception) -> None:
    raise AssertionError(f"{name} failed: {error!r}")


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


async def test_a_cancelled_owner_stops_its_actors_and_waits_for_them() -> None:
    ended: list[str] = []

    async def body() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3)
            ended.append("actor")

    with anyio.move_on_after(1) as scope:
        async with Supervisor(no_failure) as supervisor:
            supervisor.spawn("one", body)
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert ended == ["actor"]


async def test_an_error_of_the_owner_stops_its_actors() -> None:
    children: list[Child] = []

    async def fail() -> None:
        async with Supervisor(no_failure) as supervisor:
            children.append(supervisor.spawn("one", anyio.sleep_forever))
            raise LookupError("owner")

    with pytest.raises(ExceptionGroup) as caught:
        await fail()
    assert caught.group_contains(LookupError)
    assert children[0].has_ended


async def test_a_failure_that_cannot_be_escalated_stops_the_owner() -> None:
    ended: list[str] = []

    async def failing() -> None:
        await anyio.sleep(1)
        raise LookupError("broken")

    async def sibling() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("sibling")

    async def own() -> None:
        async with Supervisor(no_failure) as supervisor:
            supervisor.spawn("sibling", sibling)
            supervisor.spawn("failing", failing)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await own()
    assert caught.group_contains(AssertionError, match="failing failed")
    assert ended == ["sibling"]


async def test_an_actor_that_is_spawned_after_the_stop_does_not_begin_to_wait() -> None:
    begun: list[str] = []

    async def body() -> None:
        begun.append("body")
        await anyio.sleep_forever()

    async with Supervisor(no_failure) as supervisor:
        supervisor.stop_all()
        child = supervisor.spawn("late", body)
    assert child.has_ended
    assert begun == ["body"]


async def test_a_supervisor_must_be_entered_first() -> None:
    async def body() -> None: ...

    supervisor = Supervisor(no_failure)
    supervisor.stop_all()
    with pytest.raises(RuntimeError, match="entered"):
        supervisor.spawn("one", body)


async def test_an_actor_that_is_spawned_while_a_failure_stops_the_others_is_stopped_too() -> None:
    late: list[Child] = []

    async def failing() -> None:
        raise LookupError("broken")

    async def own() -> None:
        async with Supervisor(no_failure) as supervisor:

            async def spawning() -> None:
                try:
                    await anyio.sleep_forever()
                finally:
                    late.append(supervisor.spawn("late", anyio.sleep_forever))

            supervisor.spawn("spawning", spawning)
            await anyio.sleep(1)
            supervisor.spawn("failing", failing)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught, anyio.fail_after(60):
        await own()
    assert caught.group_contains(AssertionError, match="failing failed")
    assert late[0].has_ended


async def test_a_failure_during_the_stop_that_cannot_be_escalated_is_raised() -> None:
    async def body() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise LookupError("broken")

    async def own() -> None:
        async with Supervisor(no_failure) as supervisor:
            supervisor.spawn("one", body)
            await anyio.sleep(1)
            supervisor.stop_all()

    with pytest.raises(ExceptionGroup) as caught:
        await own()
    assert caught.group_contains(AssertionError, match="one failed")
