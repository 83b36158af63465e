"""Collections return tasks in the order in which they settle, and a cancellation once."""

from callboard.bus.effects import Failure
from callboard.languages.language import Cancelled, Ok
from callboard.runtime.interpreter.collection import StageCollection
from callboard.runtime.interpreter.driver import Driver, DriverTask, Wait


def test_tasks_are_returned_in_the_order_in_which_they_settle() -> None:
    driver = Driver()
    waits = [Wait(driver) for _ in range(3)]

    async def one(number: int) -> int:
        await waits[number]
        return number

    async def main() -> list[int]:
        found: list[int] = []
        async with StageCollection(driver) as collection:
            for number in range(3):
                collection.add(driver.spawn(one(number)))
            for _ in range(3):
                task = await collection.next()
                assert isinstance(task, DriverTask)
                assert isinstance(task.settled, Ok)
                found.append(task.settled.value)
        return found

    root = driver.start(main())
    driver.run()
    for number in (2, 0, 1):
        waits[number].wake()
    driver.run()
    assert root.settled == Ok([2, 0, 1])


def test_a_cancellation_is_returned_once_and_later_results_follow() -> None:
    driver = Driver()
    wait = Wait(driver)
    results: list[object] = []

    async def work() -> str:
        await wait
        return "done"

    async def main() -> str:
        async with StageCollection(driver) as collection:
            collection.add(driver.spawn(work()))
            for _ in range(2):
                results.append(await collection.next())
        return "left"

    root = driver.start(main())
    driver.run()
    driver.cancel(root, Failure("cancelled"))
    driver.run()
    [cancelled] = results
    assert isinstance(cancelled, Cancelled)
    assert cancelled.cause == Failure("cancelled")
    wait.wake()
    driver.run()
    assert isinstance(results[1], DriverTask)
    assert results[1].settled == Ok("done")
    assert root.settled == Ok("left")
