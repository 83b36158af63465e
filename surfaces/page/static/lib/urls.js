// Addresses: parse and build the addresses of views. Pure.

/**
 * @typedef {object} Place
 * @property {string} view home, runs, run, diff, inbox, definitions, definition, start, workers, schedules, costs, keys, none
 * @property {string} tenant
 * @property {string[]} names what stands in the path behind the view: a run, a definition
 * @property {URLSearchParams} query
 */

const VIEWS = ['runs', 'inbox', 'definitions', 'start', 'workers', 'schedules', 'costs', 'keys']

/** @param {{pathname: string, search: string}} location @returns {Place} */
export function placeOf(location) {
  const [empty, t, tenant = '', view = '', ...rest] = location.pathname.split('/').map(decoded)
  const names = rest.filter((name) => name !== '')
  const query = new URLSearchParams(location.search)
  const place = (/** @type {string} */ found) => ({view: found, tenant, names, query})
  if (empty !== '' || t !== 't') return place('home')
  if (view === '') return place('home')
  if (!VIEWS.includes(view)) return place('none')
  if (view === 'runs' && names.length === 3 && names[1] === 'diff') return {...place('diff'), names: [names[0], names[2]]}
  if (view === 'runs' && names.length === 1) return place('run')
  if (view === 'definitions' && names.length === 1) return place('definition')
  return names.length === 0 || view === 'start' ? place(view) : place('none')
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/**
 * Make an address of a tenant.
 * @param {string} tenant
 * @param {string[]} parts
 * @param {Record<string, string|number|null|undefined>} [query] without what is empty
 */
export function address(tenant, parts, query = {}) {
  const path = ['', 't', tenant, ...parts].map(encodeURIComponent).join('/')
  const asked = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') asked.set(name, String(value))
  }
  const text = asked.toString()
  return `${parts.length ? path : `${path}/`}${text ? `?${text}` : ''}`
}

/** What a definition is known by in an address: `name@hash`. @param {string} text @returns {[string, string]} */
export function versionOf(text) {
  const at = text.lastIndexOf('@')
  return at > 0 ? [text.slice(0, at), text.slice(at + 1)] : [text, '']
}
