"""Barriers of a page: those that axe-core finds, light and dark; without colours; and in windows of any size."""

from typing import Literal

from playwright.async_api import Page

from tests.support.browser import Opened, axe
from tests.support.page_server import evaluate

BARRED = """async (rules) => {
    const how = {resultTypes: ['violations'], preload: false}
    const found = await axe.run(document, rules ? {...how, runOnly: {type: 'rule', values: rules}} : how)
    return found.violations.flatMap((one) => one.nodes.map((node) =>
        `${one.id} ${node.target.join(' ')}: ${node.failureSummary.split('\\n')[1] ?? ''}`.trim()))
}"""

SCHEMES: dict[Literal["light", "dark"], list[str] | None] = {"light": None, "dark": ["color-contrast"]}
"""With the rules of axe that are checked in each; None: all."""

SIZES = {"phone": (390, 844), "tablet": (760, 1180), "desktop": (1440, 900)}
"""Windows; the second one is a little wider than those that are laid out as a phone. Axe looks at the last one."""

WIDER = """() => new Promise((done) => requestAnimationFrame(() =>
    done(document.documentElement.scrollWidth > document.documentElement.clientWidth)))"""

SEEN_IN_GREY = """() => {
    const straight = (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4
    const light = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map((one) => straight(one / 255))
        return 0.2126 * r + 0.7152 * g + 0.0722 * b
    }
    const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05)
    const behind = (one) => {
        const colour = getComputedStyle(one).backgroundColor
        return /, 0\\)$/.test(colour) && one.parentElement ? behind(one.parentElement) : colour
    }
    const chips = [...document.querySelectorAll('main .status')].filter((one) => one.checkVisibility()).map((one) => {
        const glyph = one.querySelector('.glyph'), shape = glyph.textContent
        return [shape, one.textContent.replace(shape, ''), contrast(getComputedStyle(glyph).color, behind(one))]
    })
    const looks = '.running, .ok, .failed, .waiting, .paused, .cancelled, .plain'
    const nodes = [...document.querySelectorAll(`.gnode:is(${looks})`)].map((one) => {
        const glyph = one.querySelector('.glyph'), word = one.querySelector('.hit').getAttribute('aria-label')
        const [drawn, ground] = [glyph, one.querySelector('.badge')].map((each) => getComputedStyle(each).fill)
        return [glyph.textContent, word.split(': ').pop(), contrast(drawn, ground)]
    })
    return [...chips, ...nodes]
}"""
"""Of every status that is seen: its shape, its word, and by how much its shape is lighter or darker than its ground."""

SHAPE_CONTRAST_MIN = 3


async def find_wider(page: Page, name: str, *sizes: str) -> list[str]:
    """Return a sentence for each size of the window that a page is wider than; the window keeps the last one."""
    found: list[str] = []
    for size in sizes:
        width, height = SIZES[size]
        await page.set_viewport_size({"width": width, "height": height})
        if await evaluate(page, WIDER):
            found.append(f"{name} is wider than a {size}")
    return found


async def find_barriers(browser: Opened, page: Page, name: str) -> list[str]:
    """Return a sentence for each barrier of a page."""
    found = await find_wider(page, name, *SIZES)
    if not await evaluate(page, "() => 'axe' in window"):
        await evaluate(page, f"() => {{ {axe()}; window.axe ??= axe }}")
    for scheme, rules in SCHEMES.items():
        await page.emulate_media(color_scheme=scheme)
        found += [f"{name}, {scheme}: {one}" for one in await evaluate(page, BARRED, rules)]
        for shape, word, contrast in await evaluate(page, SEEN_IN_GREY):
            if not shape or not word.strip() or contrast < SHAPE_CONTRAST_MIN:
                found.append(f"{name}, {scheme}, without colours: {word!r} has the shape {shape!r}, {contrast:.1f}")
        await browser.pictures(page, f"{name}-{scheme}", SIZES)
    return found
