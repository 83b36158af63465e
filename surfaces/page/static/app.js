// The page: the view of each address, navigation between addresses, and keys.

import {post, readsOnly, Refused, tenant, to} from './lib/api.js'
import {fill, h, s} from './lib/dom.js'
import {again as connect, begin as listen, count, watch} from './lib/follow.js'
import {count as spelled} from './lib/format.js'
import {placeOf} from './lib/urls.js'
import {begin, go} from './views/going.js'
import {help, palette} from './views/palette.js'
import {failure, nothing} from './views/parts.js'
import {announce, applySettings, settingsButton} from './views/settings.js'
import {look} from './lib/status.js'

/** @type {[string, string[], string][]} */
const NAV = [['runs', ['runs'], 'Runs'], ['inbox', ['inbox'], 'Inbox'], ['definitions', ['definitions'], 'Definitions'], ['workers', ['workers'], 'Operations']]
/** @type {Record<string, [string, string, () => Promise<unknown>]>} */
const VIEWS = {
  home: ['cb-home', 'Callboard', () => import('./views/home.js')],
  runs: ['cb-runs', 'Runs', () => import('./views/runs.js')],
  run: ['cb-run', '', () => import('./views/run.js')],
  inbox: ['cb-inbox', 'Inbox', () => import('./views/inbox.js')],
  definitions: ['cb-definitions', 'Definitions', () => import('./views/definitions.js')],
  definition: ['cb-definition', '', () => import('./views/definitions.js')],
  start: ['cb-start', 'Start a run', () => import('./views/start.js')],
  workers: ['cb-workers', 'Workers', () => import('./views/workers.js')],
  schedules: ['cb-schedules', 'Schedules', () => import('./views/operations.js')],
  costs: ['cb-costs', 'Costs', () => import('./views/operations.js')],
  keys: ['cb-keys', 'Keys', () => import('./views/operations.js')],
  diff: ['cb-diff', '', () => import('./views/diff.js')],
}
const CHORD_MS = 1_000
/** How long the first view may take before the stream begins all the same. */
const NEWS_MS = 1_000
/** How long the first view may wait, before it is put up, for what it shows first. */
const READY_MS = 300
const LIVE = {idle: ['', ''], live: ['●', 'live'], away: ['○', 'connecting'], unauthorized: ['○', 'locked']}

const view = h('main', {id: 'view', tabindex: '-1'})
const live = h('span', {class: 'live', role: 'status'})
const nav = h('nav', {'aria-label': 'Views'}, (readsOnly ? NAV.slice(0, 1) : NAV).map(([name, parts, word]) => h('a', {href: to(parts), data: {view: name}}, word)))

function frame() {
  fill(
    document.body,
    h('a', {class: 'skip', href: '#view', onclick: (/** @type {Event} */ event) => {
      event.preventDefault()
      view.focus()
    }}, 'Skip to the content'),
    h('header', {class: 'top'},
      h('a', {class: 'logo', href: to([])}, mark(), 'Callboard'),
      nav,
      h('span', {class: 'stretch'}),
      live,
      readsOnly ? h('span', {class: 'soft'}, 'read only') : h('a', {class: 'button primary', href: to(['start'])}, 'Start a run'),
      h('button', {class: 'quiet', 'aria-label': '⌘K: go to anything', title: 'Go to anything (⌘K)', onclick: palette}, '⌘K'),
      settingsButton(redraw),
      h('button', {class: 'quiet keys-button', 'aria-label': '?: keys', title: 'Keys (?)', onclick: help}, '?')),
    view,
    h('div', {id: 'said', class: 'heard', role: 'status', 'aria-live': 'polite'}),
  )
  watch((state) => {
    const [sign, word] = LIVE[state]
    if (live.dataset.state !== state) fill(live, sign ? h('span', {class: state, 'aria-hidden': 'true'}, sign) : null, ` ${word}`)
    live.dataset.state = state
    if (state === 'live' && view.querySelector('.failure[data-passing]')) again()
  })
}

/** Show the view once more, as times look different. */
function redraw() {
  view.replaceChildren()
  arrive()
}

/** What the tab is called: open questions, the status of the run that is looked at, and the view. */
function entitle() {
  const name = [named, 'Callboard'].filter((one, i, all) => all.indexOf(one) === i).join(' · ')
  document.title = `${open ? `(${open}) ` : ''}${standing ? `${look(standing)[1]} ` : ''}${name}`
}

/** The name of the view, and the status of the run in it. */
let named = '', standing = ''

/** The server is back: what could not be shown without it is asked for anew. */
function again() {
  const element = /** @type {any} */ (view.firstElementChild)
  if (element?.again) element.again()
  else arrive()
}

/** How many questions the link to the inbox says are open. */
let open = 0

/** How many questions are open stands at the inbox. @param {number} questions */
function inbox(questions) {
  const link = nav.querySelector('[data-view=inbox]')
  if (!link || questions === open) return
  if (questions > open) announce(questions === 1 ? '1 open question' : `${spelled(questions)} open questions`, 'Click to open the inbox.', () => go(to(['inbox'])))
  open = questions
  entitle()
  fill(link, 'Inbox', questions ? h('span', {class: 'open'}, spelled(questions), h('span', {class: 'heard'}, ' open')) : null)
}

/** As `icon.svg`; but an image that is a drawing costs a browser a page of its own. */
const mark = () => s('svg', {viewBox: '0 0 32 32', width: '20', height: '20', 'aria-hidden': 'true'},
  s('rect', {x: 3, y: 5, width: 26, height: 22, rx: 4, class: 'board'}),
  s('path', {d: 'M9 12h14M9 17h9M9 22h11'}),
  s('circle', {cx: 16, cy: 5, r: 3}))

let arrivals = 0
/** What is looked at, but for how: somebody who comes to something else begins there, at its top. */
let looked = ''

/** Draw the view of the current address. */
async function arrive() {
  const turn = ++arrivals
  if (location.pathname === '/') return go(to([]), {replace: true})
  const place = placeOf(location)
  const [tag, title, load] = VIEWS[place.view] ?? []
  if (place.tenant !== tenant) {
    return put(nothing(`Tenant ${place.tenant} is not served here`, h('a', {class: 'button', href: to([])}, `Go to ${tenant}`)))
  }
  if (place.view === 'home' && readsOnly) return go(to(['runs']), {replace: true})
  for (const link of nav.children) {
    const own = /** @type {HTMLElement} */ (link).dataset.view
    const here = own === place.view || (own === 'runs' && ['run', 'diff'].includes(place.view)) || (own === 'definitions' && place.view === 'definition') || (own === 'workers' && ['schedules', 'costs', 'keys'].includes(place.view))
    if (here) link.setAttribute('aria-current', 'page')
    else link.removeAttribute('aria-current')
  }
  if (!tag) return put(nothing('No view has this address', h('a', {class: 'button', href: to(['runs'])}, 'All runs')))
  const name = title || place.names.join(' ')
  if (name !== named) standing = ''
  named = name
  entitle()
  const loaded = await load().then(() => true, () => false)
  // The person has already navigated to another address.
  if (turn !== arrivals) return
  if (!loaded) return put(failure(new Refused(0, {message: 'this view could not be loaded'}), h('button', {onclick: arrive}, 'Try again')))
  let element = /** @type {any} */ (view.firstElementChild)
  if (element?.localName !== tag) {
    const first = !element
    element = document.createElement(tag)
    if (first && element.ready) {
      // On an empty page, content that is ready soon is drawn together with its frame, in one step.
      await Promise.race([element.ready(place), new Promise((done) => setTimeout(done, READY_MS))]).catch(reportError)
      if (turn !== arrivals) return element.close()
    }
    put(element)
  }
  view.setAttribute('aria-label', name)
  const now = JSON.stringify([place.view, place.names])
  if (looked && looked !== now) view.focus()
  looked = now
  await element.show(place)
}

/** Have something stand in the view, and the frame around it. @param {Node} one */
function put(one) {
  view.replaceChildren(one)
  if (!view.isConnected) frame()
}

// -- keys --------------------------------------------------------------------------------------------------------------

let chord = 0

/** @param {KeyboardEvent} event */
function key(event) {
  if ((event.metaKey || event.ctrlKey) && event.key === 'k') {
    event.preventDefault()
    return palette()
  }
  const target = /** @type {HTMLElement} */ (event.target)
  if (event.metaKey || event.ctrlKey || event.altKey || document.querySelector('dialog[open]')) return
  if (target.closest('input:not([type=range]):not([type=checkbox]), textarea, select')) {
    if (event.key === 'Escape') target.blur()
    return
  }
  const asked = chorded(event.key) ?? KEYS[event.key] ?? null
  const element = /** @type {any} */ (view.firstElementChild)
  if (asked) asked()
  else if (!element?.key?.(event.key)) return
  event.preventDefault()
}

/** @param {string} key */
function chorded(key) {
  const after = Date.now() - chord < CHORD_MS
  chord = key === 'g' && !after ? Date.now() : 0
  /** @type {Record<string, string[]>} */
  const places = {r: ['runs'], i: ['inbox'], d: ['definitions'], w: ['workers'], s: ['start'], h: []}
  if (after && key in places) return () => go(to(places[key]))
  return key === 'g' ? () => {} : null
}

/** @type {Record<string, () => void>} */
const KEYS = {
  '/': () => /** @type {HTMLElement|null} */ (document.querySelector('[data-find]'))?.focus(),
  '?': () => help(),
  j: () => into('ArrowDown'),
  k: () => into('ArrowUp'),
  Escape: () => leave(),
}

/** Close the menu that is open, or leave what one is in, or the view. */
function leave() {
  const menu = document.querySelector('details.menu[open]'), here = /** @type {HTMLElement|null} */ (document.activeElement)
  if (menu instanceof HTMLDetailsElement) {
    menu.open = false
    menu.querySelector('summary')?.focus()
  } else if (here && here !== document.body && here !== view) here.blur()
  else if (history.length > 1) history.back()
}

/** A menu is open for as long as one is in it. @param {Event} event */
function shut(event) {
  for (const menu of document.querySelectorAll('details.menu[open]')) if (!menu.contains(/** @type {Node} */ (event.target))) menu.removeAttribute('open')
}

/** The list that one sees is walked through even before one is in it. @param {string} name */
function into(name) {
  const list = [...document.querySelectorAll('.list')].find((one) => /** @type {HTMLElement} */ (one).offsetParent)
  if (!(list instanceof HTMLElement)) return
  list.focus()
  list.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true}))
}

// -- the way in --------------------------------------------------------------------------------------------------------

/** Why the last token was refused. */
let untaken = ''

/** @param {string} token */
async function login(token) {
  try {
    const answer = await post('/login', {token})
    untaken = answer.ok ? '' : answer.status === 401 ? 'This token is invalid or expired.' : (await answer.json().catch(() => ({}))).error?.message ?? `The server answers ${answer.status}.`
  } catch {
    untaken = 'The server does not answer.'
  }
  if (!untaken) connect()
}

function locked() {
  // The view that is loading has nothing to show.
  arrivals++
  if (view.querySelector('.locked')) return
  const input = h('input', {type: 'password', id: 'token', autocomplete: 'current-password', required: true, 'aria-describedby': 'untaken'})
  const said = h('p', {class: 'problem', id: 'untaken', role: 'alert'}, untaken && `✕ ${untaken}`)
  put(h('form', {class: 'locked nothing', onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault()
    await login(input.value.trim())
    said.textContent = untaken && `✕ ${untaken}`
    if (untaken) return input.select()
    view.replaceChildren()
    arrive()
  }}, h('h2', {}, 'A token is needed'), h('p', {}, 'It is in the address that the server printed; you can also enter it here.'), h('label', {for: 'token'}, 'Token'), input, said, h('button', {class: 'primary'}, 'Sign in')))
  input.focus()
}

async function main() {
  applySettings()
  const token = new URLSearchParams(location.hash.slice(1)).get('token')
  if (token !== null) {
    history.replaceState(null, '', location.pathname + location.search)
    await login(token)
  }
  document.addEventListener('unauthorized', locked)
  document.addEventListener('keydown', key)
  document.addEventListener('click', shut)
  view.addEventListener('standing', (event) => {
    standing = /** @type {CustomEvent} */ (event).detail
    entitle()
  })
  begin(arrive)
  // Updates are shown after the view that they change; if the view takes too long, they are shown anyway.
  try {
    await Promise.race([arrive(), new Promise((done) => setTimeout(done, NEWS_MS))])
  } finally {
    listen()
  }
  if (!readsOnly) count(inbox)
}

main()
