// One run: its status, graph, waterfall and events with their contents; at the last event or any other.

import {get, Refused, to} from '../lib/api.js'
import {fill, h, paced, say, settle} from '../lib/dom.js'
import {count, duration, grouped, instant, moment, some, spent} from '../lib/format.js'
import {asking, follow} from '../lib/follow.js'
import {cell, headings, List, row as line} from '../lib/list.js'
import {endingOf, rowOf, rowsOf} from '../lib/rows.js'
import {Run} from '../lib/run.js'
import {chip, look, over} from '../lib/status.js'
import {divider, sized} from './dividers.js'
import {go, note} from './going.js'
import {Graph} from './graph.js'
import {Inspector} from './inspector.js'
import {Outcome} from './outcome.js'
import {failure} from './parts.js'
import {Source} from './source.js'
import {beside, forking, verbs} from './verbs.js'
import {Waterfall} from './waterfall.js'

/** @typedef {import('../lib/rows.js').Row} Row */
/**
 * What has failed of a run: the event of the failure that ended it, and the steps that failed, the first with its event.
 * @typedef {{ended_at?: number, steps?: {count?: number, path?: string, n?: number}}} Failures
 */

/** @type {Failures} */
const NOTHING = {}
const EVENTS_PX = 26
/** As many as are asked for with the document (`shell.py`). */
const FIRST_ROWS = 499
const INDEX_ROWS = 20_000
const TICK_MS = 1_000
/** How long the next page of an index may keep what has been read from being drawn. */
const WAITED_MS = 30
/** How long what a run has used waits to be priced, with whatever else it uses until then. */
const PRICED_MS = 1_000
/** How long an event that is missing may still come by itself. */
const LACKING_MS = 500
const SAID_MAX = 20_000
/** How long after an answer without a text one asks again what a model has said, first and at most. */
const RECALL_MS = 1_000, RECALL_MAX_MS = 30_000
const FAMILIES = ['run', 'node', 'route', 'model', 'tool', 'effect', 'timer', 'human', 'signal', 'child']
/** The tracks of the panes in `style.css`, in a wide window. @type {Record<string, import('./dividers.js').Track>} */
const TRACKS = {
  graph: {at: 0, property: '--graph', size: 0.8}, spans: {at: 1, property: '--spans', size: 1.5}, inspector: {at: 2, property: '--inspector', size: 1.15},
  top: {at: 0, property: '--top', size: 1.55}, events: {at: 2, property: '--events', size: 1},
}
const PANES = [['outcome', 'Outcome'], ['graph', 'Graph'], ['spans', 'Waterfall'], ['events', 'Events'], ['inspector', 'Inspect']]

export class RunView extends HTMLElement {
  /** @type {List|undefined} */
  list
  /** What the head shows, so that it is looked at only for something else. */
  headed = ''

  /** Have at hand what it shows first. @param {import('../lib/urls.js').Place} place */
  async ready(place) {
    this.show(place)
    await this.first
  }

  /** @param {import('../lib/urls.js').Place} place */
  show(place) {
    const id = place.names[0]
    const n = Number(place.query.get('n')) || null
    const chosen = Number(place.query.get('at')) || null
    const tab = place.query.get('tab') ?? 'input', pane = place.query.get('pane') ?? (n || chosen ? 'inspector' : 'outcome'), node = place.query.get('node') ?? ''
    // The first view is shown before it is attached, and then again.
    if (JSON.stringify([id, n, chosen, tab, pane, node]) === JSON.stringify([this.run_id, this.n, this.chosen, this.tab, this.pane, this.node])) return this.loading
    if (id !== this.run_id) this.open(id, n)
    Object.assign(this, {n, chosen, tab, pane, node})
    this.panes()
    this.asked()
    return this.loading
  }

  /** @param {string} id @param {number|null} n */
  open(id, n) {
    this.close()
    this.run_id = id
    this.headed = ''
    this.classList.remove('missing')
    this.run = new Run()
    this.n = n
    this.node = ''
    /** @type {number|null} the event that is selected, wherever the scrubber is */
    this.chosen = null
    this.tab = 'input'
    this.pane = 'outcome'
    /** @type {Map<number, {epoch: number, pieces: string[]}>} what models say at the moment, by their calls */
    this.saying = new Map()
    /** @type {Map<number, {tries: number, until: number}>} what models have said before was asked for so often, by their calls, and is not asked for until */
    this.recalled = new Map()
    this.filter = {family: '', failed: false, text: ''}
    /** @type {Row[]} */
    this.events = []
    /** Which version of the run its events are listed of. @type {number} */
    this.listed = -1
    /** How many events have been looked at whether they fit the filter. */
    this.sifted = 0
    /** @type {import('../lib/rows.js').Ending|null} */
    this.ending = null
    /** @type {Failures|null} what has failed, once it has ended */
    this.failures = null
    this.language = ''
    /** @type {HTMLElement[]|undefined} */
    this.origin = undefined
    this.loaded = false
    /** Whether the end of the list of events has been looked for. */
    this.tailing = false
    /** Whether what is missing among what is told can be had. */
    this.gapless = true
    /** Of how many events it was said that they cannot be had. @type {number} */
    this.unread = 0
    /** The last event whose cost is known, if it has one. */
    this.priced = 0
    const asked = paced(() => this.draw())
    this.asked = () => this.isConnected && asked()
    this.aborted = new AbortController()
    // The request is sent while the elements for its data are built.
    const read = new Promise((done) => (this.begun = done))
    this.loading = this.load()
    this.build()
    this.first = Promise.all([read, this.graph.load(id).then(() => this.asked())])
    this.ticking = setInterval(() => this.tick(), TICK_MS)
  }

  connectedCallback() {
    this.draw()
  }

  disconnectedCallback() {
    this.close()
  }

  close() {
    this.aborted?.abort()
    this.unfollow?.()
    clearInterval(this.ticking)
    clearTimeout(this.pricing)
    clearTimeout(this.lacking)
    this.pricing = this.lacking = undefined
    for (const one of [this.graph, this.source, this.waterfall, this.inspector, this.outcome, this.list]) one?.close()
    this.run_id = undefined
  }

  // -- what it is made of ----------------------------------------------------------------------------------------------

  build() {
    const id = /** @type {string} */ (this.run_id)
    this.head = h('header', {class: 'run-head'})
    this.trouble = h('div')
    this.missing = h('div', {role: 'status'})
    this.graph = new Graph({chosen: (node) => this.chooseNode(node)})
    this.source = new Source(this.graph.element)
    const event = (/** @type {number} */ n) => this.inspector.event({id, run: this.run}, n)
    this.waterfall = new Waterfall({chosen: (span) => this.choose(span.n0), opened: (span) => span.kind === 'child' && go(to(['runs', span.name])), event})
    this.inspector = new Inspector({tab: (tab) => this.look({tab}), event: (n) => this.choose(n), fork: (place) => forking(id, place)})
    this.outcome = new Outcome({failed: () => {
      this.showFailure()
      this.turn('inspector')
    }})
    this.list = new List({
      label: 'Events', height: EVENTS_PX, row: (index) => this.event(index),
      name: (index) => String(this.events[index].n),
      head: headings('event-row', ['n', 'After', 'Type', 'Where', 'What', 'Outcome']),
      chosen: (index) => this.choose(this.events[index].n),
    })
    this.family = h('select', {'aria-label': 'Type of events', onchange: () => this.narrow()}, h('option', {value: ''}, 'all types'), FAMILIES.map((one) => h('option', {value: one}, one)))
    this.failed = h('input', {type: 'checkbox', onchange: () => this.narrow()})
    this.find = h('input', {type: 'search', placeholder: 'Find in events', 'aria-label': 'Find in events', data: {find: ''}, oninput: () => this.narrow()})
    this.counted = h('span', {class: 'soft', role: 'status'})
    this.slider = h('input', {type: 'range', min: '1', max: '1', 'aria-label': 'Event', oninput: () => this.travel(Number(this.slider.value))})
    this.where = h('output', {class: 'where'})
    this.following = h('button', {class: 'quiet', title: 'f', onclick: () => this.travel(null)}, 'latest')
    this.verify = h('button', {class: 'quiet', onclick: () => this.replay()}, 'Verify by replay')
    this.verdict = h('span', {role: 'status'})
    this.tabs = h('div', {class: 'pane-tabs', role: 'group', 'aria-label': 'Pane'}, PANES.map(([name, word]) => h('button', {'aria-pressed': 'false', data: {pane: name}, onclick: () => this.turn(name)}, word)))
    const step = (/** @type {string} */ glyph, /** @type {string} */ label, /** @type {number} */ by) => h('button', {class: 'quiet', 'aria-label': label, title: label, onclick: () => this.step(by)}, glyph)
    const panes = h('div', {class: 'panes'})
    sized(panes, Object.values(TRACKS))
    fill(
      this,
      this.head, this.trouble, this.missing, this.tabs, this.outcome.element, panes)
    const {graph, spans, inspector, top, events} = TRACKS
    fill(
      panes,
      h('section', {class: 'pane', 'aria-label': 'Graph', data: {pane: 'graph'}}, this.source.element, this.graph.element),
      divider(panes, {name: 'left', label: 'Between graph and waterfall', upright: true, before: graph, behind: spans}),
      h('section', {class: 'pane', 'aria-label': 'Waterfall', data: {pane: 'spans'}}, this.waterfall.element),
      divider(panes, {name: 'right', label: 'Between waterfall and inspector', upright: true, before: spans, behind: inspector}),
      h('section', {class: 'pane', 'aria-label': 'Inspector', data: {pane: 'inspector'}}, this.inspector.element),
      h('div', {class: 'scrubber'}, step('◀', 'Previous event', -1), this.slider, step('▶', 'Next event', 1), this.where, this.following, this.verify, this.verdict),
      divider(panes, {name: 'lower', label: 'Between graph and events', upright: false, before: top, behind: events}),
      h('section', {class: 'pane', 'aria-label': 'Events', data: {pane: 'events'}},
        h('div', {class: 'bar small'}, h('h2', {}, 'Events'), this.family, h('label', {class: 'check'}, this.failed, 'failed only'), this.find, this.counted),
        this.list.element),
    )
  }

  /** @param {string} pane */
  turn(pane) {
    this.pane = pane
    note({pane})
    this.panes()
    this.asked()
  }

  panes() {
    this.dataset.pane = this.pane
    for (const button of this.tabs.children) button.setAttribute('aria-pressed', String(/** @type {HTMLElement} */ (button).dataset.pane === this.pane))
  }

  // -- what it knows ---------------------------------------------------------------------------------------------------

  async load() {
    const id = /** @type {string} */ (this.run_id)
    const {signal} = /** @type {AbortController} */ (this.aborted)
    const since = asking()
    let waiting = 0
    try {
      for await (const index of indexOf(id, this.run.last, signal)) {
        clearTimeout(waiting)
        this.take(index)
        this.begun?.()
        this.priced = this.run.last
        this.missed()
        // Without a live stream this is its last state.
        this.loaded = !index.more || !index.count
        if (this.loaded) this.lookUp()
        // Data that arrives at once is drawn at once; later data together with earlier.
        if (this.list.count) waiting = setTimeout(() => this.asked(), WAITED_MS)
        else this.draw()
      }
      if (signal.aborted) return
      if (!this.run.ended) this.unfollow = follow(`run:${id}`, (told) => this.hear(told), since)
    } catch (error) {
      clearTimeout(waiting)
      this.begun?.()
      if (signal.aborted) return
      const unknown = error instanceof Refused && error.status === 404
      this.classList.toggle('missing', unknown)
      fill(this.trouble, failure(error, unknown ? h('a', {class: 'button', href: to(['runs'])}, 'All runs') : h('button', {onclick: () => this.again()}, 'Try again')))
      this.asked()
    }
  }

  /** Ask once more for what could not be had. */
  again() {
    const id = /** @type {string} */ (this.run_id)
    if (this.trouble.hasChildNodes()) {
      fill(this.trouble)
      if (this.loaded) this.readOn()
      else this.load()
    }
    this.inspector.again()
    this.outcome.again(this.summary())
    if (!this.graph.ids.length) this.graph.load(id).then(() => this.asked())
  }

  /** @param {any} index a page of it */
  take(index) {
    const {language, parent, schedule, forked_from: forked, continues, definition_hash: hash} = index.origin
    this.language = language
    /** @type {string} of the definition */
    this.hash = hash
    this.origin ??= links(/** @type {string} */ (this.run_id), parent, schedule, forked, continues)
    // More events may have arrived by now.
    if (index.last >= this.run.last) this.ending = index.ending ?? this.ending
    this.run.parted = forked?.n ?? 0
    this.run.take(rowsOf(index), true)
    this.run.charge(index.costs)
  }

  /** Ask what it has cost meanwhile: what is told as it comes has tokens and no prices. */
  async price() {
    const {signal} = /** @type {AbortController} */ (this.aborted)
    try {
      const index = await get(['runs', /** @type {string} */ (this.run_id), 'index'], {after: this.priced, limit: INDEX_ROWS}, signal)
      this.run.charge(index.costs)
      // The server may know events that have not arrived here yet: they are priced when they arrive.
      this.priced = Math.min(index.last, this.run.last)
      this.pricing = undefined
      if (index.more) this.spends()
      this.asked()
    } catch (error) {
      if (signal.aborted) return
      this.pricing = undefined
      if (error instanceof Refused && !error.status) this.spends()
    }
  }

  /** Of what is told something is missing: the server has it. */
  lacks() {
    this.lacking ??= setTimeout(() => this.readOn(), LACKING_MS)
  }

  /** Take what has come behind the last event that is known. */
  async readOn() {
    const {signal} = /** @type {AbortController} */ (this.aborted)
    clearTimeout(this.lacking)
    this.lacking = undefined
    const known = this.run.last
    try {
      for await (const index of indexOf(/** @type {string} */ (this.run_id), known, signal)) {
        this.take(index)
      }
      if (!signal.aborted && this.run.last !== known) this.come()
    } catch (error) {
      if (signal.aborted || (error instanceof Refused && error.status === 401)) return
      if (error instanceof Refused && (!error.status || error.status >= 500)) return this.lacks()
      // The earlier events cannot be loaded: new ones are accepted without them.
      this.gapless = false
      fill(this.trouble, failure(error))
    }
  }

  /** Report unreadable events as they are found. */
  missed() {
    const {lost} = this.run
    if (!lost.length || lost.length === this.unread) return
    this.unread = lost.length
    const which = lost.length > 1 ? `${some(lost.length, 'event')} cannot be read, from event ${lost[0]} on` : `Event ${lost[0]} cannot be read`
    fill(this.missing, h('div', {class: 'failure'}, `${which}: the message in the log is not a valid event. All other events are shown.`))
  }

  spends() {
    this.pricing ??= setTimeout(() => this.price(), PRICED_MS)
  }

  /** @param {import('../lib/follow.js').Told[]} told */
  hear(told) {
    /** @type {Row[]} */
    const rows = []
    for (const one of told) {
      if (one.sequence !== null) rows.push(rowOf(one.event, one.sequence))
      else if (one.delta) this.piece(one.delta)
      // Events between the loaded ones and the live ones are loaded.
      else this.readOn()
    }
    const before = this.run.statusAt(this.run.last)
    this.run.take(rows, !this.gapless)
    for (const {event} of told) if (event?.n <= this.run.last) this.ending = endingOf(event) ?? this.ending
    if ((rows.at(-1)?.n ?? 0) > this.run.last) this.lacks()
    if (rows.some((row) => row.tokens)) this.spends()
    const status = this.run.statusAt(this.run.last)
    if (status !== before) say(`The run is ${look(status)[2]}`)
    this.come()
  }

  /** Draw new events; after the end, stop following. */
  come() {
    this.missed()
    this.lookUp()
    const ended = over(this.run.statusAt(this.run.last))
    for (const n of this.saying.keys()) if (ended || (n <= this.run.last && this.run.spanOf(n)?.n1 !== Infinity)) this.saying.delete(n)
    if (this.run.ended) {
      this.unfollow?.()
      this.unfollow = undefined
    }
    this.asked()
  }

  /** @param {any} delta */
  piece({n, epoch, k, text}) {
    let one = this.saying.get(n)
    if (!one || one.epoch < epoch) this.saying.set(n, (one = {epoch, pieces: []}))
    if (one.epoch === epoch) one.pieces[k] = text
  }

  /** Ask what a model has said in a call before it was heard here. @param {number} n */
  async recall(n) {
    const {tries, until} = this.recalled.get(n) ?? {tries: 0, until: 0}
    if (Date.now() < until) return
    const wait = Math.min(RECALL_MS * 2 ** tries, RECALL_MAX_MS)
    this.recalled.set(n, {tries, until: Infinity})
    const {signal} = /** @type {AbortController} */ (this.aborted)
    const said = await get(['runs', /** @type {string} */ (this.run_id), 'partial', String(n)], {}, signal).catch(() => /** @type {any} */ (null))
    if (signal.aborted) return
    this.recalled.set(n, {tries: tries + 1, until: Date.now() + wait})
    if (said?.k) {
      const {epoch, k, text, omitted} = said
      for (let i = 0; i < k - 1; i++) this.piece({n, epoch, k: i, text: ''})
      this.piece({n, epoch, k: k - 1, text: omitted ? `… ${text}` : text})
    } else setTimeout(this.asked, wait)
    this.asked()
  }

  // -- what is looked at -----------------------------------------------------------------------------------------------

  /**
   * @param {{n?: number|null, chosen?: number|null, tab?: string, node?: string}} query
   * @param {boolean} [leaving] whether Back returns to what was selected before
   */
  look(query, leaving = false) {
    if (query.n !== undefined) this.n = query.n
    if (query.chosen !== undefined) this.chosen = query.chosen
    if (query.tab !== undefined) this.tab = query.tab
    if (query.node !== undefined) this.node = query.node
    note({n: this.n, at: this.chosen, tab: this.tab === 'input' ? null : this.tab, node: this.node}, leaving)
    this.asked()
  }

  /** Select an event: the run stays at the event at which it is shown. @param {number} n @param {string} [tab] */
  choose(n, tab = this.tab) {
    this.look({chosen: n, node: '', tab}, true)
  }

  /** Show the run as it was after an event, and that event unless a node is selected; null: as it is. @param {number|null} n */
  travel(n) {
    this.look({n, chosen: null})
  }

  /** A node of the drawing: its latest execution. @param {string} id */
  chooseNode(id) {
    this.look({node: id, chosen: this.run.latestOf(id, this.n ?? this.run.last)?.n0 ?? null}, true)
  }

  /** @param {number} by */
  step(by) {
    this.look({n: Math.max(1, Math.min(this.run.last, (this.n ?? this.run.last) + by)), chosen: null, node: ''})
  }

  /** Select the previous or next event at which a node begins. @param {number} by */
  stepNode(by) {
    const n = this.chosen ?? this.n ?? this.run.last
    const enters = this.run.rows.filter((row) => row.type === 'node.enter' && (by > 0 ? row.n > n : row.n < n))
    const row = by > 0 ? enters[0] : enters.at(-1)
    if (row) this.choose(row.n)
  }

  /** Ask what has failed, if the run has ended. */
  async lookUp() {
    const {signal} = /** @type {AbortController} */ (this.aborted)
    if (this.failures || !over(this.run.statusAt(this.run.last))) return
    this.failures = NOTHING
    // Without an answer, failures are found by `e`.
    this.failures = await get(['runs', /** @type {string} */ (this.run_id), 'failures'], {}, signal).catch(() => NOTHING)
    if (!signal.aborted) this.asked()
  }

  /** Select the failure that ended the run, or else the first that was caught. */
  showFailure() {
    const {ended_at: ended, steps} = this.failures ?? NOTHING
    const n = ended || steps?.n
    if (n) this.choose(n, 'error')
    else this.nextFailure()
  }

  nextFailure() {
    const n = this.chosen ?? 0
    const found = this.run.failures.find((one) => one > n) ?? this.run.failures[0]
    if (found) this.choose(found, 'error')
  }

  async replay() {
    const n = this.n ?? this.run.last
    this.verify.disabled = true
    fill(this.verdict, 'replaying…')
    try {
      const found = await get(['runs', /** @type {string} */ (this.run_id), 'replay', String(n)])
      const waits = found.open?.length ? `, ${some(found.open.length, 'effect')} open` : ''
      fill(this.verdict, h('span', {class: 'status ok'}, h('span', {class: 'glyph', 'aria-hidden': 'true'}, '✓'), `as recorded, up to event ${n}${waits}`))
    } catch (error) {
      fill(this.verdict, h('span', {class: 'status failed'}, h('span', {class: 'glyph', 'aria-hidden': 'true'}, '✕'), error instanceof Refused ? error.message : String(error)))
    } finally {
      this.verify.disabled = false
    }
  }

  narrow() {
    this.filter = {family: this.family.value, failed: this.failed.checked, text: this.find.value.toLowerCase()}
    this.listed = -1
    this.events = []
    this.sifted = 0
    this.asked()
  }

  /** @param {Row} row */
  fits(row) {
    const {family, failed, text} = this.filter
    if (family && row.type !== family && !row.type.startsWith(`${family}.`)) return false
    if (failed && row.outcome !== 'failed' && !row.type.endsWith('.failed')) return false
    return !text || `${row.type} ${row.path} ${row.name} ${row.outcome}`.toLowerCase().includes(text)
  }

  // -- how it is drawn -------------------------------------------------------------------------------------------------

  draw() {
    if (!this.isConnected || !this.run) return
    const {run} = this
    const n = Math.min(this.n ?? run.last, run.last)
    this.header()
    this.scrub(n)
    if (!run.last) return
    run.draw(this.graph.ids)
    const executed = this.node ? run.latestOf(this.node, n)?.n0 : undefined
    const at = Math.min(this.chosen ?? executed ?? this.n ?? this.settled(), run.last)
    const absent = this.loaded && this.chosen === null && executed === undefined ? this.node : ''
    const span = run.spanOf(at)
    for (const list of [this.waterfall.list, this.list]) list.measured()
    this.waterfall.show(run, n, span, this.loaded, this.chosen !== null)
    // While the events are still being read, it is not known what goes on.
    if (this.loaded || this.n !== null) this.graph.colour(run.shown(n), run.takenBy(n), this.node || drawnOf(run, span))
    this.entries(at)
    if (this.language === 'python') this.source.show({id: /** @type {string} */ (this.run_id), n})
    this.outcome.show(this.summary())
    const call = span?.kind === 'model' ? this.saying.get(span.n0) : null
    const {said, lacks} = spoken(call?.pieces ?? [])
    this.outcome.speak(span?.n1 === Infinity && !run.final ? said : '')
    if (span?.kind === 'model' && span.n1 === Infinity && this.loaded && !run.final && (lacks || !call)) this.recall(span.n0)
    // A call that has just begun is not known to its worker yet.
    const tries = (span && this.recalled.get(span.n0)?.tries) ?? 0
    this.inspector.show({id: /** @type {string} */ (this.run_id), run, n: at, span, until: Math.max(n, at), loaded: this.loaded, tab: this.tab, absent, said, lacks: call ? lacks && tries > 0 : tries > 1})
  }

  /** What the outcome is made of. */
  summary() {
    const id = /** @type {string} */ (this.run_id), {run, loaded} = this
    return {id, run, loaded, failures: this.failures, event: (/** @type {number} */ n) => this.inspector.event({id, run}, n)}
  }

  /** What is looked at where nobody has chosen: the first failure, else what is going on, else the whole run. */
  settled() {
    const {run} = this
    // A run that is still loading is incomplete.
    if (!this.loaded) return 1
    if (run.final === 'failed' || run.final === 'expired') {
      const {ended_at: ended} = this.failures ?? NOTHING
      if (ended) return run.spanOf(ended)?.n0 || 1
      // A node may have ended before its edge is taken.
      const last = run.failures.findLast((n) => run.spanOf(n)?.kind !== 'run')
      return (last && run.spanOf(last)?.n0) || 1
    }
    return run.final ? 1 : run.current?.n0 ?? 1
  }

  header() {
    const {run, ending} = this
    const id = /** @type {string} */ (this.run_id)
    const status = run.last ? run.statusAt(run.last) : 'accepted'
    const t0 = run.beganAt(run.root, run.last)
    // The status is known once all events have been loaded.
    const read = this.loaded || over(status)
    const lasted = run.last && read ? duration(run.lasted(run.root, run.last, Date.now()) / 1000) : ''
    const tokens = run.tokensAt(run.last)
    const cost = spent(run.root.cost)
    const parts = `${status} ${read} ${this.trouble.hasChildNodes()} ${lasted} ${tokens} ${cost} ${run.last} ${Boolean(ending)} ${this.origin?.length}`
    if (parts === this.headed) return
    this.headed = parts
    if (read) this.dispatchEvent(new CustomEvent('standing', {detail: status, bubbles: true}))
    settle(
      this.head,
      h('div', {class: 'run-title'}, h('a', {href: to(['runs']), class: 'soft', 'aria-label': 'All runs'}, 'Runs ›'), h('h1', {}, id), read ? chip(status) : h('span', {class: 'soft'}, this.trouble.hasChildNodes() ? '' : 'reading…'), h('span', {class: 'stretch'}), read ? verbs(id, status, run) : null),
      h('div', {class: 'facts'},
        run.root.name ? h('a', {href: to(['definitions', `${run.root.name}@${this.hash}`], {run: id})}, run.root.name) : null,
        this.origin?.map((one) => one.cloneNode(true)) ?? [],
        this.language ? h('span', {class: 'soft'}, this.language) : null,
        h('span', {}, lasted),
        tokens ? h('span', {title: 'tokens in and out'}, `${count(tokens)} tok`) : null,
        cost ? h('span', {title: 'what models have cost, by the prices of the server'}, cost) : null,
        run.last ? h('span', {class: 'soft'}, some(run.last, 'event')) : null,
        t0 ? h('time', {class: 'soft', datetime: new Date(t0).toISOString()}, instant(t0)) : null,
        ending?.warnings ? h('span', {class: 'soft'}, some(ending.warnings, 'warning')) : null,
        ending?.continued_as ? h('span', {}, 'continued as ', h('a', {href: to(['runs', ending.continued_as])}, ending.continued_as)) : null),
      ending?.code ? h('p', {class: 'why'}, h('code', {class: 'code'}, ending.code), ' ', ending.message.slice(0, 300), ' ', h('button', {class: 'quiet', onclick: () => this.showFailure()}, 'where?')) : null,
    )
  }

  /** @param {number} n */
  scrub(n) {
    const {run} = this
    this.slider.max = String(Math.max(run.last, 1))
    this.slider.value = String(n)
    const whole = this.n === null || this.n >= run.last
    fill(this.where, run.last ? `event ${n} of ${run.last}` : 'no events yet', whole || !run.last ? null : h('span', {class: 'soft'}, ` · ${look(run.statusAt(n))[2]} · ${count(run.tokensAt(n))} tok`))
    this.following.hidden = this.n === null
  }

  /** @param {number} at the event that is shown in the inspector */
  entries(at) {
    const {run} = this
    const chosen = this.n !== null || this.chosen !== null || this.node !== ''
    if (this.listed === run.version) {
      const active = chosen ? this.index(at) : -1
      if (active !== this.list.active) this.list.mark(active)
      return
    }
    this.listed = run.version
    // A run that has ended is listed from its beginning; the latest events of another are seen once all have been read,
    // and its last ones to whoever has followed it to its end.
    const end = this.loaded && !chosen && (this.tailing ? this.list.atEnd : !over(run.statusAt(run.last)))
    this.tailing ||= this.loaded
    if (this.filter.family || this.filter.failed || this.filter.text) {
      for (; this.sifted < run.last; this.sifted++) if (this.fits(run.rows[this.sifted])) this.events.push(run.rows[this.sifted])
    } else this.events = run.rows
    this.list.set(this.events.length, {active: chosen ? this.index(at) : -1, sought: end ? this.events.length - 1 : -1})
    this.counted.textContent = this.events.length === run.last ? '' : `${grouped(this.events.length)} of ${grouped(run.last)}`
  }

  /** Where an event is among those that are listed; the last one before it if it is not. @param {number} n */
  index(n) {
    let low = 0, high = this.events.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.events[middle].n <= n) low = middle + 1
      else high = middle
    }
    return low - 1
  }

  /** @param {number} index @returns {HTMLElement} */
  event(index) {
    const row = this.events[index]
    const away = this.run.away(row.n, row.time)
    const after = row.time - this.run.root.t0 - (away ? away.end - away.start : 0)
    return line('event-row', [
      String(row.n),
      h('time', {datetime: new Date(row.time).toISOString(), title: moment(row.time)}, `+${duration(after / 1000)}`),
      cell({class: `type ${row.type.split('.')[0]}`}, row.type),
      cell({class: 'path', title: row.path}, row.path ? `${row.path}${row.iteration > 1 ? `#${row.iteration}` : ''}` : ''),
      cell({title: row.name}, row.name),
      row.outcome && row.outcome !== 'caller' ? chip(row.outcome) : row.tokens ? `${count(row.tokens)} tok` : '',
    ], {'aria-current': index === this.list.active ? 'true' : null})
  }

  tick() {
    if (over(this.run.statusAt(this.run.last)) || document.hidden) return
    this.header()
    this.waterfall.tick()
  }

  /** @param {string} key @returns {boolean} whether it means something here */
  key(key) {
    /** @type {Record<string, () => void>} */
    const keys = {
      ',': () => this.step(-1), '.': () => this.step(1), '<': () => this.stepNode(-1), '>': () => this.stepNode(1),
      f: () => this.look({n: null, chosen: null, node: ''}), e: () => this.nextFailure(), d: () => beside(/** @type {string} */ (this.run_id)),
      s: () => this.look({tab: 'input'}), z: () => this.graph.fill(),
    }
    keys[key]?.()
    return key in keys
  }
}

/**
 * The index of a run behind one of its events, page by page: each is asked for while the one before is taken in.
 * @param {string} id @param {number} after @param {AbortSignal} signal
 */
async function* indexOf(id, after, signal) {
  const page = (/** @type {number} */ after) => get(['runs', id, 'index'], {after, limit: after ? INDEX_ROWS : FIRST_ROWS}, signal)
  for (let asked = page(after); asked;) {
    const index = await asked
    const next = index.more && index.count ? page(index.last) : undefined
    // The next iteration reports the failure.
    next?.catch(() => {})
    yield index
    asked = next
  }
}

/**
 * The end of what a model says at the moment, with a mark in place of each part that is not shown, and whether parts of it
 * have not been received: they were sent before the page was open, or while its connection was interrupted.
 * @param {string[]} pieces
 */
function spoken(pieces) {
  let text = '', lacks = false
  for (let k = 0, was = true; k < pieces.length; k++) {
    const has = k in pieces
    if (!has && was) text += k ? ' … ' : '… '
    text += pieces[k] ?? ''
    lacks ||= !has
    was = has
  }
  return {said: text.length > SAID_MAX ? `… ${text.slice(-SAID_MAX)}` : text, lacks}
}

/** The node of the drawing that a span is in, or ''. @param {Run} run @param {import('../lib/run.js').Span|null} span */
function drawnOf(run, span) {
  for (let one = span; one?.path; one = one.parent) {
    const id = run.idOf(one.path)
    if (id) return id
  }
  return ''
}

/** The origin of a run. @param {string} id @param {string|null} parent @param {string|null} schedule @param {{run: string, n: number}|null} forked @param {string|null} continues */
function links(id, parent, schedule, forked, continues) {
  const link = (/** @type {string} */ word, /** @type {string} */ run, /** @type {object} */ query = {}) => h('span', {}, `${word} `, h('a', {href: to(['runs', run], query)}, run))
  return [
    parent ? link('started by', parent) : null,
    continues ? link('continues', continues) : null,
    forked ? link(`forked from event ${forked.n} of`, forked.run, {at: forked.n}) : null,
    forked ? h('a', {href: to(['runs', forked.run, 'diff', id])}, 'compare') : null,
    schedule ? h('span', {class: 'soft'}, `schedule ${schedule}`) : null,
  ].filter((one) => one !== null)
}

customElements.define('cb-run', RunView)
