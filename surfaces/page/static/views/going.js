// Navigation between addresses without reloading the page.

/** @type {() => void} */
let arrived = () => {}

/** @param {() => void} then called whenever the address has changed */
export function begin(then) {
  arrived = then
  addEventListener('popstate', then)
  document.addEventListener('click', (event) => {
    const link = /** @type {Element} */ (event.target).closest?.('a[href]')
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button !== 0) return
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target || link.hasAttribute('download')) return
    if (link.origin !== location.origin || !link.pathname.startsWith('/t/')) return
    event.preventDefault()
    go(link.href)
  })
}

/** @param {string} url @param {{replace?: boolean}} [how] */
export function go(url, {replace = false} = {}) {
  if (replace) history.replaceState(null, '', url)
  else history.pushState(null, '', url)
  arrived()
}

/**
 * Note in the address what is looked at, without going anywhere.
 * @param {Record<string, string|number|null>} query
 * @param {boolean} [leaving] whether Back leads to what was noted before
 */
export function note(query, leaving = false) {
  const url = new URL(location.href)
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === '') url.searchParams.delete(name)
    else url.searchParams.set(name, String(value))
  }
  if (url.href === location.href) return
  if (leaving) history.pushState(null, '', url)
  else history.replaceState(null, '', url)
}
