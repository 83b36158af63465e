"""The modules of the page are served as one script; each has a form that can be bundled."""

import re
from collections.abc import Iterator

import pytest
from playwright.async_api import Route

from callboard.surfaces.page.shell import SCRIPT, WORKER, bundle_modules, static_files
from tests.support.browser import Opened

MODULES = {
    name: file.plain.decode()
    for name, file in static_files().items()
    if name.endswith(".js") and name not in (SCRIPT, WORKER)
}

SMALL = {
    "app.js": """import {twice as double, LOG} from './lib/sums.js'
import './lib/first.js'

LOG.push(double(2))
const later = {sum: () => import('./views/sum.js')}
later.sum().then(({Sum}) => { window.told = [...LOG, new Sum().of(3, 4)] })
""",
    "lib/first.js": """import {LOG} from './sums.js'
LOG.push('first')
""",
    "lib/sums.js": """// What adds up.

/** In the order in which it was said. @type {string[]} */
export const LOG = ['sums']
/**
 * Twice as many.
 * @param {number} n
 */
export function twice(n) { return 2 * n }
LOG.push(import.meta.url.split('/').slice(-2).join('/'))
""",
    "views/sum.js": """import {LOG, twice} from '../lib/sums.js'
LOG.push('sum')
export class Sum {
  of(a, b) { return twice(a + b) }
}
""",
}


def imports(module: str) -> Iterator[str]:
    """The modules that a module imports statically, as the bundle has them."""
    script = bundle_modules({module: MODULES[module]}).removesuffix("use('app.js')\n")
    yield from re.findall(r"^(?:const \{[^}]*\} = )?use\('([^']+)'\)$", script, re.MULTILINE)


def test_every_module_has_a_form_that_the_bundle_accepts() -> None:
    script = bundle_modules(MODULES)
    result = [line for line in script.splitlines() if re.match(r"(import|export)\b", line)]
    assert result == []
    code = re.sub(r"/\*\*.*?\*/|^//.*$", "", script, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"\bimport\(", code)
    for module in MODULES:
        assert set(imports(module)) <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_no_module_imports_itself_through_others(module: str) -> None:
    found = list(imports(module))
    for one in found:
        found += [other for other in imports(one) if other not in found] if one in MODULES else []
    assert module not in found


def test_the_script_has_no_comments_that_take_whole_lines() -> None:
    script = bundle_modules(SMALL)
    assert ("//" in script, "/*" in script) == (False, False)
    assert bundle_modules({"one.js": "a = /** @type {any} */ (b) // c\n"}).count("*/ (b) // c") == 1
    lines = [line.strip() for line in bundle_modules(MODULES).splitlines()]
    assert not [line for line in lines if line.startswith(("//", "*")) or (line[:3] == "/**" and line[-2:] == "*/")]


async def test_a_bundled_module_runs_once_when_it_is_first_imported(browser: Opened) -> None:
    page = await browser.page("about:blank")
    document = '<script type="module" src="/static/joined.js"></script>'

    async def answer(route: Route) -> None:
        if route.request.url.endswith(".js"):
            await route.fulfill(content_type="text/javascript", body=bundle_modules(SMALL))
        else:
            await route.fulfill(content_type="text/html", body=document)

    await page.route("http://localhost/**", answer)
    await page.goto("http://localhost/")
    handle = await page.wait_for_function("() => window.told")
    assert await handle.json_value() == ["sums", "lib/sums.js", "first", 4, "sum", 14]
    await browser.close_pages()
