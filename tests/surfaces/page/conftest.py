"""The browser, and the server that it looks at."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.browser import Reused, opened
from tests.support.page_stage import Furnish, Stage, furnished


@pytest.fixture(scope="package")
async def browser() -> AsyncIterator[Reused]:
    """One for the tests of this folder that a process performs one after another. Its event loop runs as long as it."""
    async for one in opened():
        yield Reused(one.browser)


@pytest.fixture(scope="module")
def furnish() -> Furnish:
    """How a module has its stage; one that wants more on it has a fixture of its own."""
    return furnished


@pytest.fixture(scope="module")
async def deployment(
    browser: Reused, furnish: Furnish, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    """The stage of a module: its tests share it, each with runs of other names."""
    async with furnish(browser, tmp_path_factory.mktemp("house")) as stage:
        yield stage
        await browser.leave()


@pytest.fixture
async def stage(
    browser: Reused, deployment: Stage, furnish: Furnish, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Stage]:
    """The deployment of the module; a test that has failed and is run again has its own."""
    failed = request.session.testsfailed
    async with AsyncExitStack() as stack:
        if getattr(request.node, "execution_count", 1) > 1:
            await browser.forget()
            deployment = await stack.enter_async_context(furnish(browser, tmp_path))
        await stack.enter_async_context(deployment.watched())
        yield deployment
    if request.session.testsfailed > failed:
        await browser.forget()
