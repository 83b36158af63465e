"""The browser, and the server whose page it shows."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.browser import Reused, opened
from tests.support.page_server import OpenPageServer, PageServer, open_page_server


@pytest.fixture(scope="package")
async def browser() -> AsyncIterator[Reused]:
    """One browser for all tests of this folder that a process runs; its event loop lives as long."""
    async for one in opened():
        yield Reused(one.browser)


@pytest.fixture(scope="module")
def open_server() -> OpenPageServer:
    """Opens the server of a module; a module that needs more data on it overrides this fixture."""
    return open_page_server


@pytest.fixture(scope="module")
async def module_server(
    browser: Reused, open_server: OpenPageServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[PageServer]:
    """The server that the tests of a module share; each test names its runs differently."""
    async with open_server(browser, tmp_path_factory.mktemp("server")) as server:
        yield server
        await browser.leave()


@pytest.fixture
async def server(
    browser: Reused,
    module_server: PageServer,
    open_server: OpenPageServer,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> AsyncIterator[PageServer]:
    """The server of the module; a test that failed and is run again has a new one."""
    failed = request.session.testsfailed
    async with AsyncExitStack() as stack:
        if getattr(request.node, "execution_count", 1) > 1:
            await browser.forget()
            module_server = await stack.enter_async_context(open_server(browser, tmp_path))
        await stack.enter_async_context(module_server.watched())
        yield module_server
    if request.session.testsfailed > failed:
        await browser.forget()
