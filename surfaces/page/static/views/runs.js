// The list of runs: filters in the address, rows loaded on demand, live updates.

import {get, to} from '../lib/api.js'
import {chip, LISTED, look, over} from '../lib/status.js'
import {count, dollars, duration, instant, when} from '../lib/format.js'
import {h, paced, say} from '../lib/dom.js'
import {cell, headings, List, row} from '../lib/list.js'
import {follow} from '../lib/follow.js'
import {failure, nothing} from './parts.js'
import {go} from './going.js'
import {Picking} from './picking.js'
import {savedFilters} from './saved.js'

/** As many as are asked for with the document (`preloads.py`). */
const PAGE = 200
const ROW_PX = 40
const SINCE = [['', 'any time'], ['3600', 'last hour'], ['86400', 'last 24 h'], ['604800', 'last 7 days']]
const FILTERS = ['q', 'status', 'definition', 'since']
const TYPING_MS = 200
const TICK_MS = 1_000
/** Runs that come faster than one reads are drawn at such distances. */
const NEWS_MS = 150
const AGAIN_MS = 2_000
const QUESTION = /[=~<>]/

export class RunsView extends HTMLElement {
  /** @type {List|undefined} */
  list
  /** @type {any[]} */
  rows = []
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
    for (const name of FILTERS) this.fields[name].value = this.asked[name]
    return this.load(true)
  }

  connectedCallback() {
    this.unfollow = follow('runs', (told) => this.hear(told))
    this.ticking = setInterval(() => this.tick(), TICK_MS)
  }

  disconnectedCallback() {
    this.unfollow?.()
    clearInterval(this.ticking)
    clearTimeout(this.asking)
    clearTimeout(this.typing)
    this.asking = undefined
    this.list?.close()
    this.loading?.abort()
  }

  build() {
    const choice = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string[][]} */ options) =>
      h('select', {'aria-label': label, onchange: () => this.narrow()}, options.map(([value, word]) => h('option', {value}, word)))
    /** @type {Record<string, HTMLInputElement|HTMLSelectElement>} */
    this.fields = {
      q: h('input', {type: 'search', placeholder: 'Find a run, a word, or status=failed …', 'aria-label': 'Find runs', data: {find: ''}, oninput: () => this.typed()}),
      status: choice('status', 'Status', [['', 'any status'], ...LISTED.map((status) => [status, `${look(status)[1]} ${status}`])]),
      definition: h('input', {type: 'text', list: 'definitions-known', placeholder: 'any definition', 'aria-label': 'Definition', oninput: () => this.typed()}),
      since: choice('since', 'Since', SINCE),
    }
    this.known = h('datalist', {id: 'definitions-known'})
    this.pill = h('button', {class: 'news', hidden: true, onclick: () => this.merge()})
    this.note = h('div', {class: 'note'})
    this.picking = new Picking(() => this.drawn())
    this.heard = paced(() => this.isConnected && this.shown(), NEWS_MS)
    const list = new List({
      label: 'Runs', height: ROW_PX, row: (index) => this.row(index),
      name: (index) => this.rows[index]?.run ?? '',
      head: this.headings(),
      opened: (index) => this.rows[index] && go(to(['runs', this.rows[index].run])),
      ended: () => this.load(false),
      released: () => this.shown(),
    })
    this.replaceChildren(
      h('div', {class: 'bar'}, h('h1', {}, 'Runs'), this.fields.q, this.fields.status, this.fields.definition, this.fields.since, this.known, savedFilters(() => this.asked), this.pill, this.picking.element),
      h('div', {class: 'sheet'}, list.element, this.note),
    )
    return list
  }

  headings() {
    const made = headings('run-row', ['Status', 'Run', 'Definition', 'Started', 'Took', 'Tokens'])
    made.prepend(h('span', {role: 'columnheader', class: 'picks'}, h('span', {class: 'heard'}, 'Picked')))
    return made
  }

  typed() {
    clearTimeout(this.typing)
    this.typing = setTimeout(() => this.narrow(), TYPING_MS)
  }

  narrow() {
    const asked = Object.fromEntries(FILTERS.map((name) => [name, this.fields[name].value]))
    go(to(['runs'], asked), {replace: true})
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
      const {q, ...rest} = this.asked
      const asked = QUESTION.test(q) ? {...rest, where: q} : this.asked
      const answer = await get(['runs'], {...asked, limit: PAGE, before}, loading.signal)
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
    this.rows = []
    this.byRun.clear()
    this.list.set(0)
  }

  drawn() {
    this.list.element.setAttribute('aria-busy', String(!this.read))
    this.list.set(this.rows.length)
    this.list.element.classList.toggle('picking', this.picking.runs.size > 0)
    const definitions = new Set(this.rows.map((one) => one.definition))
    if (definitions.size !== this.known.children.length) this.known.replaceChildren(...[...definitions].sort().map((value) => h('option', {value})))
    const filtered = FILTERS.some((name) => this.asked[name])
    this.list.element.classList.toggle('empty', !this.rows.length)
    if (this.rows.length || !this.read) this.note.replaceChildren()
    else if (filtered) this.note.replaceChildren(nothing('No run matches', 'Remove a filter to see more.', h('a', {class: 'button', href: to(['runs'])}, 'All runs')))
    else this.note.replaceChildren(nothing('No runs yet', 'Runs appear here as soon as they are started.', h('a', {class: 'button primary', href: to([])}, 'Try an example')))
    this.pill.hidden = !this.news.length
    this.pill.textContent = `${this.news.length} new ↑`
  }

  /** @param {number} index */
  row(index) {
    const one = this.rows[index]
    const started = one.started_at ?? one.accepted_at
    const cells = [
      chip(one.status),
      h('a', {href: to(['runs', one.run]), tabindex: '-1'}, one.run),
      cell({title: one.definition}, one.definition),
      h('time', {datetime: started, title: instant(started)}, when(started)),
      cell({data: one.ended_at ? {} : {since: started}}, lasted(one)),
      one.error && over(one.status) ? cell({class: 'code', title: one.error}, one.error) : [one.tokens ? `${count(one.tokens)} tok` : '', dollars(one.cost)].filter(Boolean).join(' · '),
    ]
    const picked = this.picking.runs.has(one.run)
    const made = row(`run-row${picked ? ' picked' : ''}`, cells)
    made.prepend(cell({class: 'picks'}, this.picking.box(one.run, () => this.rows.map((each) => each.run))))
    return made
  }

  /** @param {string} key @returns {boolean} whether it means something here */
  key(key) {
    const one = this.rows[this.list?.active ?? -1]
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
    if (QUESTION.test(this.asked.q) || told.some((one) => one.begun)) this.asking ??= setTimeout(() => this.again(), AGAIN_MS)
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
    const known = this.byRun.get(event.run)
    if (event.type === 'run.accepted' && !known) {
      const {definition} = event.payload
      const one = {run: event.run, definition: event.definition || definition.name || definition.hash.slice(0, 12), status: 'accepted', accepted_at: event.time}
      if (!this.fits(one)) return
      this.byRun.set(one.run, one)
      this.news.push(one)
    } else if (known) {
      change(known, event)
    }
  }

  /** Whether a new run is among those that are asked for, as far as one sees it. @param {any} one */
  fits(one) {
    const {q, status, definition} = this.asked
    if (QUESTION.test(q)) return false
    const text = `${one.run} ${one.definition}`.toLowerCase()
    return (!status || status === 'running') && (!definition || definition === one.definition) && (!q || text.includes(q.toLowerCase()))
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
