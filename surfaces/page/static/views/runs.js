// The list of runs: filters and order in the address, columns to choose, rows loaded on demand, live updates.

import {get, tenant, to} from '../lib/api.js'
import {chip, LISTED, look, over} from '../lib/status.js'
import {count, dollars, duration, instant, some, when} from '../lib/format.js'
import {fill, h, paced, say} from '../lib/dom.js'
import {cell, List} from '../lib/list.js'
import {follow} from '../lib/follow.js'
import {failure, nothing} from './parts.js'
import {go} from './going.js'
import {Picking} from './picking.js'
import {savedViews} from './saved.js'

/** As many as are asked for with the document (`shell.py`). */
const PAGE = 200
/** How many child runs of a run are shown below it. */
const CHILDREN_MAX = 2_000
const ROW_PX = 40
const FOLD_PX = 20
const SINCE = [['', 'any time'], ['3600', 'last hour'], ['86400', 'last 24 h'], ['604800', 'last 7 days']]
/** In the order in which they are asked for (`preloads.py`). */
const FILTERS = ['q', 'status', 'definition', 'since', 'order', 'tag', 'error', 'by', 'cost']
/** Of these the server knows the values that runs have. @type {Record<string, string>} */
const OFFERED = {definition: 'any definition', tag: 'any tag', error: 'any error', by: 'by anyone'}
/** @type {Record<string, string>} */
const LABELS = {definition: 'Definition', tag: 'Tag', error: 'Error', by: 'Started by'}
const VALUES_MAX = 200
/** Columns: name, heading, width, and the name by which the server sorts. @type {[string, string, string, string][]} */
const COLUMNS = [
  ['status', 'Status', '178px', 'status'], ['run', 'Run', 'minmax(130px, 2fr)', 'run'], ['definition', 'Definition', 'minmax(90px, 1.2fr)', 'definition'],
  ['started', 'Started', '104px', 'accepted'], ['duration', 'Duration', '92px', 'duration'], ['tokens', 'Tokens', '72px', 'tokens'], ['cost', 'Cost', '86px', 'cost'],
  ['error', 'Error', 'minmax(90px, 1fr)', 'error'], ['tags', 'Tags', 'minmax(80px, 1fr)', ''],
  ['ended', 'Ended', '104px', 'ended'], ['language', 'Language', '86px', ''], ['worker', 'Worker', 'minmax(80px, 0.8fr)', ''], ['by', 'Started by', 'minmax(80px, 0.8fr)', ''], ['parent', 'Parent', 'minmax(80px, 0.8fr)', ''],
]
const USUAL = ['status', 'run', 'definition', 'started', 'duration', 'tokens', 'cost', 'error', 'tags']
const NARROW = ['status', 'run', 'definition', 'started', 'duration', 'cost', 'error']
/** Where this browser keeps which columns are shown. */
const PLACE = `callboard.columns.${tenant}`
const TYPING_MS = 200
const TICK_MS = 1_000
/** Runs that come faster than one reads are drawn at such distances. */
const NEWS_MS = 150
const AGAIN_MS = 2_000
const QUESTION = /[=~<>]/
/** In a window of this width the usual columns are fewer. */
const narrow = matchMedia('(max-width: 1100px)')

export class RunsView extends HTMLElement {
  /** @type {List|undefined} */
  list
  /** @type {any[]} */
  rows = []
  /** The rows as they are seen, child runs below the run that started them, by `name`. @type {{one: any, depth: number, name: string}[]} */
  lines = []
  /** Child runs that are seen, by the run that started them, the newest first. @type {Map<string, Map<string, any>>} */
  unfolded = new Map()
  /** @type {any[]} */
  news = []
  /** @type {Map<string, any>} rows and news, by their runs */
  byRun = new Map()
  /** Whether the rows that are asked for have come, so that none says something. */
  read = false

  /** What was heard since the list was asked for: the answer may be older. @type {any[]} */
  meanwhile = []

  /** @param {import('../lib/urls.js').Place} place */
  show(place) {
    this.asked = Object.fromEntries(FILTERS.map((name) => [name, place.query.get(name) ?? '']))
    this.more = true
    // The previous list stays until the new one has arrived.
    this.read = false
    clearTimeout(this.typing)
    this.list ??= this.build()
    for (const name of Object.keys(this.fields)) this.fields[name].value = this.asked[name]
    this.headed()
    return this.load(true)
  }

  /** The window has become wide or narrow. */
  resized = () => {
    this.columns = kept()
    this.headed()
    this.drawn()
  }

  connectedCallback() {
    this.unfollow = follow('runs', (told) => this.hear(told))
    this.ticking = setInterval(() => this.tick(), TICK_MS)
    narrow.addEventListener('change', this.resized)
  }

  disconnectedCallback() {
    this.unfollow?.()
    narrow.removeEventListener('change', this.resized)
    clearInterval(this.ticking)
    clearTimeout(this.asking)
    clearTimeout(this.typing)
    this.asking = undefined
    this.list?.close()
    this.loading?.abort()
  }

  build() {
    const choice = (/** @type {string} */ label, /** @type {string[][]} */ options) =>
      h('select', {'aria-label': label, onchange: () => this.narrow()}, options.map(([value, word]) => h('option', {value}, word)))
    /** @type {Record<string, HTMLInputElement|HTMLSelectElement>} */
    this.fields = {
      q: h('input', {type: 'search', placeholder: 'Find a run, a word, or status=failed …', 'aria-label': 'Find runs', data: {find: ''}, oninput: () => this.typed()}),
      status: choice('Status', [['', 'any status'], ...LISTED.map((status) => [status, `${look(status)[1]} ${status}`])]),
      since: choice('Since', SINCE),
      cost: h('input', {type: 'text', inputmode: 'decimal', class: 'filter', placeholder: 'cost above $', 'aria-label': 'Cost above, in dollars', autocomplete: 'off', oninput: () => this.typed()}),
    }
    const offered = Object.entries(OFFERED).map(([name, word]) => this.offered(name, word))
    this.pill = h('button', {class: 'news', hidden: true, onclick: () => this.merge()})
    this.note = h('div', {class: 'note'})
    this.picking = new Picking(() => this.drawn(), (run) => [...this.known(run)][0]?.status ?? '')
    this.heard = paced(() => this.isConnected && this.shown(), NEWS_MS)
    this.head = h('div', {class: 'run-row head', role: 'row'})
    this.columns = kept()
    const list = new List({
      label: 'Runs', height: ROW_PX, row: (index) => this.row(index),
      name: (index) => this.lines[index]?.name ?? '', role: 'treegrid',
      head: this.head, opens: true,
      opened: (index) => this.lines[index] && go(to(['runs', this.lines[index].one.run])),
      ended: () => this.load(false),
      released: () => this.shown(),
    })
    list.element.addEventListener('keydown', (event) => this.fold(event))
    this.replaceChildren(
      h('div', {class: 'bar'}, h('h1', {}, 'Runs'), this.fields.q, this.fields.status, ...offered, this.fields.cost, this.fields.since, savedViews(() => this.asked, () => this.columns, (columns) => this.keep(columns)), this.chooser(), this.pill, this.picking.element),
      h('div', {class: 'sheet'}, list.element, this.note),
    )
    return list
  }

  /** A filter whose values are offered as soon as somebody comes to it. @param {string} name @param {string} word */
  offered(name, word) {
    const known = h('datalist', {id: `${name}-known`})
    let asked = false
    const offer = async () => {
      if (asked) return
      asked = true
      const {values} = await get(['values'], {of: name, limit: VALUES_MAX}).catch(() => ({values: /** @type {any[]} */ ([])}))
      fill(known, values.map((/** @type {any} */ one) => h('option', {value: one.value}, `${count(one.runs)} runs`)))
    }
    this.fields[name] = h('input', {type: 'text', class: 'filter', list: known.id, placeholder: word, 'aria-label': LABELS[name], autocomplete: 'off', onfocus: offer, oninput: () => this.typed()})
    return h('span', {class: 'offered'}, this.fields[name], known)
  }

  /** The columns that are shown, and what they are sorted by. */
  headed() {
    this.list?.element.style.setProperty('--columns', ['14px', ...this.columns.map((name) => COLUMNS.find(([one]) => one === name)?.[2])].join(' '))
    const by = this.asked.order.replace(/^-/, '') || 'accepted', down = !this.asked.order || this.asked.order.startsWith('-')
    fill(this.head, h('span', {role: 'columnheader', class: 'picks'}, this.picking.all(() => this.rows.map((each) => each.run)) ?? h('span', {class: 'heard'}, 'Selected')), this.columns.map((name) => {
      const [, word, , sort] = COLUMNS.find(([one]) => one === name) ?? ['', name, '', '']
      if (!sort) return h('span', {role: 'columnheader', class: `k-${name}`}, word)
      // Numbers and times begin with the greatest, texts with the first letter; once more turns it round.
      const next = sort === by ? !down : !['run', 'definition', 'status', 'error'].includes(sort)
      const order = sort === 'accepted' && next ? '' : `${next ? '-' : ''}${sort}`
      return h('span', {role: 'columnheader', class: `k-${name}`, 'aria-sort': sort === by ? (down ? 'descending' : 'ascending') : null},
        h('button', {class: 'sorts', title: `Sort by ${word.toLowerCase()}`, onclick: () => go(to(['runs'], {...this.asked, order}), {replace: true})}, word, sort === by ? h('span', {'aria-hidden': 'true'}, down ? ' ↓' : ' ↑') : null))
    }))
  }

  /** The menu of columns. */
  chooser() {
    const list = h('ul', {})
    const menu = h('details', {class: 'menu', ontoggle: () => menu.open && fill(list, COLUMNS.map(([name, word]) => {
      const box = h('input', {type: 'checkbox', onchange: () => this.keep(COLUMNS.map(([one]) => one).filter((one) => (one === name ? box.checked : this.columns.includes(one))))})
      box.checked = this.columns.includes(name)
      box.disabled = name === 'run'
      return h('li', {}, h('label', {class: 'check'}, box, word))
    }))}, h('summary', {class: 'button'}, 'Columns'), list)
    return menu
  }

  /** @param {string[]} columns */
  keep(columns) {
    this.columns = COLUMNS.map(([name]) => name).filter((name) => columns.includes(name) || name === 'run')
    localStorage.setItem(PLACE, JSON.stringify(this.columns))
    this.headed()
    this.drawn()
  }

  typed() {
    clearTimeout(this.typing)
    this.typing = setTimeout(() => this.narrow(), TYPING_MS)
  }

  narrow() {
    const asked = Object.fromEntries(Object.keys(this.fields).map((name) => [name, this.fields[name].value]))
    go(to(['runs'], {...this.asked, ...asked}), {replace: true})
  }

  /** @param {boolean} anew */
  async load(anew) {
    if (!anew && (!this.more || this.loading)) return
    this.loading?.abort()
    const loading = (this.loading = new AbortController())
    this.list.element.setAttribute('aria-busy', String(!this.read))
    const meanwhile = (this.meanwhile = /** @type {any[]} */ ([]))
    try {
      const before = anew ? undefined : this.rows.at(-1)?.run
      const answer = await get(['runs'], {...requested(this.asked), limit: PAGE, before}, loading.signal)
      if (loading.signal.aborted) return
      if (anew) this.byRun.clear()
      const more = answer.runs.filter((/** @type {any} */ one) => !this.byRun.has(one.run))
      for (const one of more) this.byRun.set(one.run, one)
      this.rows = anew ? more : [...this.rows, ...more]
      this.more = answer.more
      if (!this.read) this.list.scroll(0)
      this.read = true
      if (anew) this.news = []
      for (const {sequence, event} of meanwhile) if (sequence > answer.sequence) this.apply(event)
      this.shown()
    } catch (error) {
      if (loading.signal.aborted) return
      if (!this.read) this.none()
      this.note.replaceChildren(failure(error))
    } finally {
      if (this.loading === loading) this.loading = undefined
    }
  }

  /** What was listed is not what is asked for. */
  none() {
    this.rows = this.lines = []
    this.byRun.clear()
    this.list.set(0)
  }

  drawn() {
    this.list.element.setAttribute('aria-busy', String(!this.read))
    this.arrange()
    this.list.element.classList.toggle('picking', this.picking.runs.size > 0)
    this.picking.mark(this.rows.length)
    const filtered = FILTERS.some((name) => name !== 'order' && this.asked[name])
    this.list.element.classList.toggle('empty', !this.rows.length)
    if (this.rows.length || !this.read) this.note.replaceChildren()
    else if (filtered) this.note.replaceChildren(nothing('No run matches', 'Remove a filter to see more.', h('a', {class: 'button', href: to(['runs'])}, 'All runs')))
    else this.note.replaceChildren(nothing('No runs yet', 'Runs appear here as soon as they are started.', h('a', {class: 'button primary', href: to([])}, 'Try an example')))
    this.pill.hidden = !this.news.length
    this.pill.textContent = `${this.news.length} new ↑`
  }

  /**
   * Set child runs below the run that started them, if they were asked for. In the usual order they are not listed
   * themselves if that run is; what is filtered or sorted stays as the server lists it.
   */
  arrange() {
    const nests = !FILTERS.some((name) => this.asked[name]) && this.rows.some((one) => one.parent)
    const before = this.lines
    this.lines = []
    const add = (/** @type {any} */ one, /** @type {number} */ depth, /** @type {string} */ name) => {
      this.lines.push({one, depth, name})
      for (const child of this.unfolded.get(one.run)?.values() ?? []) add(child, depth + 1, `${name}/${child.run}`)
    }
    for (const one of this.rows) if (!nests || !this.byRun.has(one.parent)) add(one, 0, one.run)
    this.list.set(this.lines.length)
    if (nests) this.stay(before)
  }

  /** What is seen stays in its place when runs above it have come below their parents. @param {{name: string}[]} before */
  stay(before) {
    const {top} = this.list
    const at = new Map(this.lines.map(({name}, index) => [name, index]))
    let was = Math.min(Math.floor(top / ROW_PX), before.length - 1)
    while (was >= 0 && !at.has(before[was].name)) was--
    const by = was < 0 ? 0 : /** @type {number} */ (at.get(before[was].name)) - was
    if (top && by < 0) this.list.scroll(Math.max(0, top + by * ROW_PX))
  }

  /** Show the child runs of a run, or hide them. @param {string} run @param {boolean} open */
  async unfold(run, open) {
    if (!open) this.unfolded.delete(run)
    else {
      /** @type {Map<string, any>} */
      const below = new Map()
      this.unfolded.set(run, below)
      try {
        let before
        for (let more = true; more && below.size < CHILDREN_MAX;) {
          const answer = await get(['runs'], {where: `parent=${quoted(run)}`, limit: PAGE, before})
          for (const one of answer.runs) below.set(one.run, this.byRun.get(one.run) ?? one)
          before = answer.runs.at(-1)?.run
          more = answer.more
        }
      } catch (error) {
        this.unfolded.delete(run)
        this.note.replaceChildren(failure(error))
        return
      }
    }
    this.drawn()
  }

  /** Keys show child runs, or lead from one to its parent. @param {KeyboardEvent} event */
  fold(event) {
    const line = this.lines[this.list.active]
    if (!line || event.target !== this.list.element || event.ctrlKey || event.metaKey || event.altKey) return
    const {one: {run, children}, depth, name} = line, open = this.unfolded.has(run)
    if (['l', 'ArrowRight'].includes(event.key) && children && !open) this.unfold(run, true)
    else if (!['h', 'ArrowLeft'].includes(event.key)) return
    else if (children && open) this.unfold(run, false)
    else if (depth) this.list.choose(this.lines.findIndex((other) => other.name === name.slice(0, name.lastIndexOf('/'))))
    else return
    event.preventDefault()
  }

  /** @param {number} index */
  row(index) {
    const {one, depth} = this.lines[index], children = Math.max(one.children ?? 0, this.unfolded.get(one.run)?.size ?? 0)
    const picked = this.picking.runs.has(one.run), open = this.unfolded.has(one.run)
    const made = h('div', {class: `run-row${picked ? ' picked' : ''}`, role: 'row', 'aria-level': depth + 1, 'aria-expanded': children ? String(open) : null},
      cell({class: 'picks'}, this.picking.box(one.run, () => this.lines.map((each) => each.one.run))),
      this.columns.map((name) => cellOf(name, one)))
    const name = /** @type {HTMLElement} */ (made.querySelector('.k-run'))
    // As wide as the button that others have before their name.
    if (depth) name.style.setProperty('padding-left', `${Math.min(depth, 6) * 16 + (children ? 0 : FOLD_PX)}px`)
    if (children) name.prepend(h('button', {class: 'fold', tabindex: '-1', 'aria-label': `${open ? 'Hide' : 'Show'} ${some(children, 'child run')}`, title: some(children, 'child run'), onclick: (/** @type {Event} */ event) => {
      event.preventDefault()
      this.unfold(one.run, !open)
    }}, open ? '▾' : '▸'))
    return made
  }

  /** @param {string} key @returns {boolean} whether it means something here */
  key(key) {
    const one = this.lines[this.list?.active ?? -1]?.one
    if (key !== 'x' || !one) return false
    this.picking.turn(one.run)
    return true
  }

  /** Update the durations of current runs. */
  tick() {
    for (const span of this.querySelectorAll('[data-since]')) {
      if (span instanceof HTMLElement) span.textContent = duration((Date.now() - Date.parse(span.dataset.since ?? '')) / 1000)
    }
  }

  /** @param {import('../lib/follow.js').Told[]} told */
  hear(told) {
    const before = this.news.length
    const news = told.filter((one) => one.sequence !== null)
    if (this.loading) this.meanwhile.push(...news)
    for (const one of news) this.apply(one.event)
    this.heard()
    // Only the server can decide which new runs match a query.
    if ((this.served && news.length) || told.some((one) => one.begun)) this.asking ??= setTimeout(() => this.again(), AGAIN_MS)
    if (this.news.length > before) say(`${this.news.length} new runs`)
  }

  /** Show new runs at the top, unless the list is scrolled down or a row is about to be clicked. */
  shown() {
    if (this.news.length && this.list.top === 0 && !this.list.held) this.merge()
    else this.drawn()
  }

  again() {
    this.asking = this.list.held ? setTimeout(() => this.again(), AGAIN_MS) : undefined
    if (this.list.top === 0 && !this.list.held) this.load(true)
  }

  merge() {
    this.rows = [...this.news.reverse(), ...this.rows]
    this.news = []
    this.list.scroll(0)
    this.drawn()
  }

  /** @param {any} event */
  apply(event) {
    const known = this.known(event.run)
    if (event.type === 'run.accepted' && !known.size) {
      const {definition} = event.payload
      const one = {run: event.run, definition: event.definition || definition.name || definition.hash.slice(0, 12), status: 'accepted', accepted_at: event.time, by: event.payload.start?.by, parent: event.payload.parent?.run}
      for (const above of this.known(one.parent)) above.children = (above.children ?? 0) + 1
      const below = this.unfolded.get(one.parent), older = [...below ?? []]
      below?.clear()
      for (const [run, other] of [[one.run, one], ...older]) below?.set(run, other)
      if (!this.fits(one)) return
      this.byRun.set(one.run, one)
      this.news.push(one)
    } else for (const one of known) change(one, event)
  }

  /** The rows of a run: in its own place, and below the run that started it. @param {string} run @returns {Set<any>} */
  known(run) {
    return new Set([this.byRun, ...this.unfolded.values()].map((rows) => rows.get(run)).filter(Boolean))
  }

  /** Whether only the server can decide which new runs are listed, and where. */
  get served() {
    const {q, order, tag, error, by, cost} = this.asked
    return Boolean(QUESTION.test(q) || order || tag || error || by || cost)
  }

  /** Whether a new run is among those that are asked for, as far as one sees it. @param {any} one */
  fits(one) {
    const {q, status, definition} = this.asked
    if (this.served) return false
    const text = `${one.run} ${one.definition}`.toLowerCase()
    return (!status || status === 'running') && (!definition || definition === one.definition) && (!q || text.includes(q.toLowerCase()))
  }
}

/** The columns that were chosen in this browser, or those that fit. @returns {string[]} */
function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(PLACE) ?? 'null')
    if (Array.isArray(found) && found.includes('run')) return COLUMNS.map(([name]) => name).filter((name) => found.includes(name))
  } catch {
    // Written by another program: the usual columns are shown.
  }
  return narrow.matches ? NARROW : USUAL
}

/** What is asked for, as the server takes it. @param {Record<string, string>} asked */
function requested({q, tag, error, by, cost, ...rest}) {
  const [name, ...value] = tag.split('=')
  const tests = [QUESTION.test(q) ? (tag || error || by || cost ? `(${q})` : q) : '', tag ? `tag.${name}${value.length ? '=' : '~'}${quoted(value.join('='))}` : '', error ? `error=${quoted(error)}` : '', by ? `by=${quoted(by)}` : '', cost ? `cost>${quoted(cost.replace('$', '').trim())}` : ''].filter(Boolean)
  return {q: QUESTION.test(q) ? '' : q, ...rest, where: tests.join(' and ')}
}

/** @param {string} text */
const quoted = (text) => (text.includes('"') ? `'${text}'` : `"${text}"`)

/** What a waiting run waits for, and until when. @param {any} one */
const awaited = (one) => (one.status.startsWith('waiting') && one.deadline ? `until ${instant(one.deadline)}${one.waits_for ? `, for ${one.waits_for}` : ''}` : '')

/** @param {string} name of a column @param {any} one */
function cellOf(name, one) {
  const started = one.started_at ?? one.accepted_at
  const said = (/** @type {string} */ text, /** @type {string} */ more = '') => cell({class: `k-${name}${more}`, title: text || null}, text)
  switch (name) {
    case 'status': return cell({class: `k-${name}`, title: awaited(one) || null}, chip(one.status))
    case 'run': return cell({class: `k-${name}`, title: one.run}, h('a', {href: to(['runs', one.run]), tabindex: '-1'}, one.run))
    case 'started': return cell({class: `k-${name}`, title: instant(started)}, when(started))
    case 'ended': return cell({class: `k-${name}`, title: one.ended_at ? instant(one.ended_at) : null}, one.ended_at ? when(one.ended_at) : '')
    case 'duration': return cell({class: `k-${name}`, data: one.ended_at ? {} : {since: started}}, lasted(one))
    case 'tokens': return cell({class: `k-${name}`}, one.tokens ? count(one.tokens) : '')
    case 'cost': return cell({class: `k-${name}`}, dollars(one.cost))
    case 'error': return said(one.error ?? awaited(one), ' code')
    case 'tags': return said(Object.entries(one.tags ?? {}).map(([tag, value]) => `${tag}=${value}`).join('  '))
    default: return said(one[name] ?? '')
  }
}

/** @param {any} one */
function lasted(one) {
  if (one.duration_s !== undefined && one.ended_at) return duration(one.duration_s)
  const from = Date.parse(one.started_at ?? one.accepted_at)
  return duration(((one.ended_at ? Date.parse(one.ended_at) : Date.now()) - from) / 1000)
}

/** What an event of a run makes of its row. @param {any} one @param {any} event */
export function change(one, event) {
  const {payload} = event
  if (over(one.status) && event.type !== 'run.end') return
  switch (event.type) {
    case 'run.start': Object.assign(one, {started_at: event.time, status: 'running'}); break
    case 'run.claimed':
      if (['diverged', 'waiting:code'].includes(one.status)) one.error = null
      if (one.started_at) one.status = 'running'
      break
    case 'run.diverged': Object.assign(one, {status: payload.entry ? 'waiting:code' : 'diverged', error: payload.code}); break
    case 'run.parked': one.status = payload.status || 'waiting'; break
    case 'run.paused': one.status = 'paused'; break
    case 'run.resumed': one.status = 'running'; break
    case 'run.quarantined': Object.assign(one, {status: 'quarantined', error: payload.code}); break
    case 'run.failed': Object.assign(one, {status: 'failed', error: payload.error.code}); break
    case 'run.end': {
      const usage = payload.usage ?? {}
      const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0)
      Object.assign(one, {status: payload.status, ended_at: event.time, duration_s: undefined, tokens: tokens || one.tokens, error: payload.error?.code ?? one.error})
      break
    }
  }
}

customElements.define('cb-runs', RunsView)
