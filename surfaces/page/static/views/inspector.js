// The inspector: the input, result, recorded form and error of an event or of its span.

import {get, readsOnly, Refused, to} from '../lib/api.js'
import {fill, h, settle} from '../lib/dom.js'
import {bytes, count, duration, grouped, instant, some, spent} from '../lib/format.js'
import {chip} from '../lib/status.js'
import {LOST} from '../lib/run.js'
import {copier, file, switcher, viewed} from '../lib/viewed.js'
import {Executions} from './executions.js'
import {failure, nothing, remedy} from './parts.js'

/** @typedef {import('../lib/run.js').Run} Run */
/** @typedef {import('../lib/run.js').Span} Span */
/** @typedef {{id: string, run: Run, n: number, span: Span|null, tab: string, said: string, lacks: boolean, until: number, loaded: boolean, absent: string}} Looked `until`: the event after which the run is shown; `absent`: the selected node, if it has not been entered by then */

/** Events that say what came of something: a fork may have them say something else. */
const OUTCOMES = ['model.result', 'tool.result', 'effect.result']
/** Members of such events that a fork may replace. */
const RESULTS = ['text', 'toolCalls', 'data', 'output', 'value', 'error']
export const TABS = ['input', 'output', 'error', 'raw']
const WORDS = {input: 'Input', output: 'Output', error: 'Error', raw: 'Raw'}
const FILL_MS = 250
/** How long the content of one thing stays before that of another is asked for. */
const KEPT_MAX = 200
/** Events whose content is kept. */

export class Inspector {
  /** @param {{tab: (tab: string) => void, event: (n: number) => void, fork: (place: import('./verbs.js').Place) => void}} given */
  constructor(given) {
    this.given = given
    this.tab = 'input'
    /** @type {Map<string, Promise<any>>} */
    this.kept = new Map()
    this.head = h('div', {class: 'inspector-head'})
    this.buttons = TABS.map((tab) => h('button', {role: 'tab', 'aria-controls': 'inspected', onclick: () => this.given.tab(tab)}))
    this.tabs = h('div', {class: 'tabs', role: 'tablist', 'aria-label': 'Parts of the event', onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event)}, this.buttons)
    this.body = h('div', {class: 'inspector-body', role: 'tabpanel', id: 'inspected', tabindex: '0', 'aria-label': 'Inspected'})
    /** Whether the executions of the node are listed. */
    this.listing = false
    this.table = new Executions({
      chosen: (span) => this.given.event(span.n0),
      event: (n) => this.event(/** @type {Looked} */ (this.looked), n),
      closed: () => this.listed(false),
    })
    this.element = h('div', {class: 'inspector'}, this.head, this.table.element, h('div', {class: 'tab-bar'}, this.tabs, switcher()), this.body)
    /** @type {import('./verbs.js').Place|null} where a fork would go on */
    this.place = null
    this.turn = 0
    this.filling = 0
    this.filled = 0
    this.shown = ''
    this.titled = ''
  }

  /** @param {Looked} looked */
  show(looked) {
    this.looked = looked
    this.tab = TABS.includes(looked.tab) ? looked.tab : 'input'
    const {span, run, n, until, absent} = looked
    // The content is rebuilt only if it is for something else, or has progressed.
    const shown = `${looked.id} ${absent} ${n} ${span?.id} ${span && span.n1 <= until} ${this.tab}`
    this.executed = run.executions(absent ? null : span, until)
    const titled = `${shown} ${looked.loaded} ${looked.until > n} ${this.executed.members.length} ${this.listing}`
    if (titled !== this.titled || span?.cost !== this.cost) this.title()
    this.list()
    this.titled = titled
    this.cost = span?.cost
    if (shown === this.shown) return this.speak()
    this.shown = shown
    this.mark()
    if (run.last) this.soon()
  }

  /** Ask for nothing more. */
  close() {
    this.turn++
    this.table.close()
    clearTimeout(this.filling)
  }

  /** Ask once more for what could not be had. */
  again() {
    if (this.body.querySelector('.failure')) this.soon()
  }

  /** Of a run that goes on something else is looked at with every event: its content is asked for now and then. */
  soon() {
    this.turn++
    this.body.setAttribute('aria-busy', 'true')
    clearTimeout(this.filling)
    this.filling = setTimeout(() => this.fill(), Math.max(0, this.filled + FILL_MS - Date.now()))
  }

  /** Say which tab is chosen, and where there is an error. */
  mark() {
    const {span, until} = /** @type {Looked} */ (this.looked)
    const failed = span && span.n1 <= until && ['failed', 'timeout', 'expired', 'cancelled'].includes(span.outcome)
    this.buttons.forEach((button, i) => {
      const tab = TABS[i], chosen = tab === this.tab, bad = Boolean(tab === 'error' && failed)
      button.setAttribute('aria-selected', String(chosen))
      button.tabIndex = chosen ? 0 : -1
      button.classList.toggle('bad', bad)
      const word = `${WORDS[/** @type {keyof typeof WORDS} */ (tab)]}${bad ? ' ✕' : ''}`
      if (button.textContent !== word) button.textContent = word
    })
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const at = TABS.indexOf(this.tab), end = TABS.length - 1
    /** @type {Record<string, number>} */
    const moves = {ArrowLeft: at ? at - 1 : end, ArrowRight: at < end ? at + 1 : 0, Home: 0, End: end}
    const to = moves[event.key]
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return
    event.preventDefault()
    this.buttons[to].focus()
    this.given.tab(TABS[to])
  }

  title() {
    const {run, n, span, until, loaded, absent} = /** @type {Looked} */ (this.looked)
    if (absent) return settle(this.head, h('h2', {dir: 'auto'}, absent), h('p', {class: 'soft'}, until < run.last ? `This node has not been entered by event ${until}.` : 'This node has not been entered.'))
    const row = run.rows[n - 1]
    if (!row) return settle(this.head, h('h2', {}, 'Nothing is chosen'))
    const done = span && span.n1 <= until
    settle(
      this.head,
      h('h2', {dir: 'auto'}, span?.name || row.name || row.type),
      h('p', {class: 'facts'},
        span && (done || loaded) ? chip(run.outcomeAt(span, until)) : null,
        h('code', {}, row.type), h('span', {}, `n=${row.n}`),
        row.path ? h('code', {class: 'path'}, `${row.path}#${row.iteration}`) : null,
        done && span.kind !== 'run' ? h('span', {}, duration(run.lasted(span, until, span.t1) / 1000)) : null,
        done && span.tokens ? h('span', {}, `${count(span.tokens)} tok`) : null,
        span?.cost && (done || until >= run.last) ? h('span', {title: 'what it has cost, with what is inside of it'}, spent(span.cost)) : null,
        h('time', {class: 'soft', datetime: new Date(row.time).toISOString()}, instant(row.time)),
      ),
      span?.kind === 'child' && span.name ? h('p', {}, h('a', {class: 'button', href: to(['runs', span.name])}, `Open ${span.name}`)) : null,
      done && span.n0 !== span.n1
        ? h('p', {class: 'facts'}, 'events ', this.jump(span.n0), ' to ', this.jump(span.n1))
        : null,
      this.picker(),
      this.forks(row, span),
    )
  }

  /** Which execution of its node it is, with the way to the others. */
  picker() {
    const {node, members} = this.executed
    if (!node || members.length < 2) return null
    const at = members.indexOf(node), {length} = members
    return h('p', {class: 'facts picker'},
      h('button', {class: 'quiet', 'aria-label': 'Previous execution', disabled: at < 1, onclick: () => this.pick(-1)}, '‹'),
      h('button', {class: 'quiet', 'aria-expanded': String(this.listing), onclick: () => this.listed(!this.listing)}, `execution ${grouped(at + 1)} of ${grouped(length)}`),
      h('button', {class: 'quiet', 'aria-label': 'Next execution', disabled: at > length - 2, onclick: () => this.pick(1)}, '›'))
  }

  /** @param {number} by */
  pick(by) {
    const {node, members} = this.executed
    const other = node && members[members.indexOf(node) + by]
    if (other) this.given.event(other.n0)
  }

  /** @param {boolean} listing */
  listed(listing) {
    this.listing = listing
    if (this.looked) this.show(this.looked)
  }

  /** List the executions of the node, if that is wanted. */
  list() {
    const {run, until} = /** @type {Looked} */ (this.looked), {node, members} = this.executed
    this.table.show(this.listing && node && members.length > 1 ? {run, n: until, name: node.name, members, chosen: node, until: run.rows[Math.min(until, run.last) - 1].time} : null)
  }

  /**
   * What goes on from here: from a node, before it is entered; else behind the event. Behind the last there is nothing.
   * @param {import('../lib/rows.js').Row} row @param {Span|null} span
   */
  forks(row, span) {
    const {run} = /** @type {Looked} */ (this.looked)
    if (readsOnly || (run.final && row.n === run.last)) return null
    const entered = span?.kind === 'node' && span.n0 === row.n
    this.place = entered ? {node: `${span.path}#${span.iteration}`} : {at: row.n}
    return h('p', {}, h('button', {onclick: () => this.fork()}, 'Fork from here…'))
  }

  /** Ask what is to be different in a fork, beginning with what is recorded. */
  async fork() {
    const {place, looked} = this
    if (!place || !looked) return
    const {run, n} = looked
    /** @param {number} n @returns {Promise<any>} */
    const read = (n) => this.event(looked, n).catch(() => /** @type {any} */ (null))
    const row = run.rows[n - 1], calls = row?.type === 'tool.call'
    const turn = calls ? run.rows.slice(0, n).findLast((one) => one.type === 'model.result' && one.path === row.path && one.iteration === row.iteration) : undefined
    const [accepted, here, asked] = await Promise.all([read(1), read(n), turn ? read(turn.n) : null])
    const event = OUTCOMES.includes(row?.type) && !place.node ? here : null
    const index = (asked?.payload?.toolCalls ?? []).findIndex((/** @type {any} */ one) => one.id === here?.payload?.id)
    const members = RESULTS.filter((name) => event?.payload?.[name] !== undefined).map((name) => [name, event.payload[name]])
    this.given.fork({...place, ...(turn && index >= 0 ? {call: {n: turn.n, index, calls: asked.payload.toolCalls}} : {}), instruction: place.node ? here?.payload?.instruction : undefined, nodes: accepted?.payload?.outline?.nodes, breakpoints: accepted?.payload?.breakpoints, model: accepted?.payload?.start?.model ?? '', definition: typeof accepted?.payload?.definition?.source === 'string' ? accepted.payload.definition : undefined, outcome: event ? Object.fromEntries(members) : undefined})
  }

  /** @param {number} n */
  jump(n) {
    return h('button', {class: 'quiet', onclick: () => this.given.event(n)}, `n=${n}`)
  }

  async fill() {
    const looked = /** @type {Looked} */ (this.looked)
    const {turn} = this
    this.filled = Date.now()
    let content
    try {
      content = await this.content(looked)
    } catch (error) {
      content = [failure(error)]
    }
    // The person may have chosen something else by now.
    if (turn !== this.turn) return
    this.body.removeAttribute('aria-busy')
    this.body.scrollTop = 0
    fill(this.body, content)
    this.speak()
  }

  /** What a model says at the moment. */
  speak() {
    const {said, lacks} = /** @type {Looked} */ (this.looked)
    const place = this.body.querySelector('.speaking'), note = /** @type {HTMLElement|null} */ (this.body.querySelector('.lacks'))
    if (place && place.textContent !== said) place.textContent = said
    if (note) note.hidden = !lacks
  }

  /** @param {Looked} looked @returns {Promise<import('../lib/dom.js').Child[]>} */
  async content(looked) {
    const {run, n, span, id} = looked
    if (looked.absent) return [nothing('Not entered', 'It has no input and no output.')]
    if (run.rows[n - 1]?.type === LOST) return [nothing('This event cannot be read', 'The message in its place in the log is not a valid event.')]
    const own = await this.event(looked, n)
    if (this.tab === 'raw') return [raw(own, id)]
    const first = span && span.n0 ? await this.event(looked, span.n0) : own
    const last = span && span.n1 <= looked.until ? await this.event(looked, span.n1) : null
    if (this.tab === 'error') return wrong([last, own, first], id)
    if (this.tab === 'output') return said(first, last, own, looked)
    return first.type === 'model.call' ? await this.conversation(looked, first) : saw(first, id)
  }

  /** An event whole. @param {{id: string, run: Run}} looked @param {number} n @returns {Promise<any>} */
  event({run, id}, n) {
    const name = `${id} ${n}`
    const kept = this.kept.get(name)
    if (kept) return kept
    // A request after the sequence of a fork's first event would not return the events of its origin, which are older.
    const after = n === 1 ? 0 : run.rows[n - 1].sequence - 1
    const asked = get(['runs', id, 'events'], {after, limit: 1}).then((page) => page.events[0].event)
    if (this.kept.size >= KEPT_MAX) this.kept.delete(/** @type {string} */ (this.kept.keys().next().value))
    this.kept.set(name, asked)
    asked.catch(() => this.kept.delete(name))
    return asked
  }

  /** @param {Looked} looked @param {any} call */
  async conversation(looked, call) {
    const {id} = looked
    let seen
    try {
      seen = await get(['runs', id, 'seen', call.key])
    } catch (error) {
      // What the call itself has recorded is known without the code and the definition of the run.
      if (!(error instanceof Refused) || !error.status) throw error
      return [failure(error), ...saw(call, id)]
    }
    const {verified, digest} = seen
    return [
      h('p', {class: 'facts'},
        verified ? h('span', {class: 'status ok'}, h('span', {class: 'glyph', 'aria-hidden': 'true'}, '✓'), 'exactly what the model was sent') : h('span', {class: 'status failed'}, h('span', {class: 'glyph', 'aria-hidden': 'true'}, '✕'), 'differs from the recorded digest'),
        h('code', {class: 'soft', title: digest}, String(digest).slice(0, 12)),
        h('span', {class: 'soft'}, [seen.purpose, seen.model].filter(Boolean).join(' · ')),
        copier(seen, id, 'the whole request'),
      ),
      seen.system ? h('details', {class: 'turn system'}, h('summary', {}, 'System prompt', h('span', {class: 'soft'}, ` ${some(seen.system.length, 'character')}`)), copier(seen.system, id, 'the system prompt'), viewed(seen.system, {run: id, as: 'markdown'})) : null,
      ...turnsOf(seen.messages ?? [], looked),
      seen.tools?.length ? h('details', {class: 'turn'}, h('summary', {}, some(seen.tools.length, 'tool')), h('dl', {class: 'tools'}, seen.tools.map((/** @type {any} */ tool) => h('div', {}, h('dt', {}, h('code', {}, tool.name)), h('dd', {}, tool.description ?? '', viewed(tool.input_schema ?? {}, {open: 0})))))) : null,
      seen.choices?.length ? section('Choices', h('dl', {class: 'tools'}, seen.choices.map((/** @type {any} */ one) => h('div', {}, h('dt', {}, h('code', {}, one.id)), h('dd', {}, one.description))))) : null,
      seen.schema ? section('Answer schema', viewed(seen.schema, {open: 1})) : null,
    ]
  }
}

/** @param {string} title @param {...import('../lib/dom.js').Child} content */
const section = (title, ...content) => h('section', {}, h('h3', {}, title), ...content)

/** A value under its name. @param {string} title @param {any} value @param {import('../lib/viewed.js').How} how */
const titled = (title, value, how) => h('section', {}, h('div', {class: 'facts'}, h('h3', {}, title), copier(value, how.run ?? '', title)), viewed(value, how))

const fresh = () => h('span', {class: 'new'}, 'new')

/**
 * The messages of a conversation. The results of tools are shown under their calls, wherever they were sent.
 * @param {any[]} messages @param {Looked} looked
 */
function turnsOf(messages, looked) {
  const {id, run, until} = looked
  /** @type {Map<string, {part: any, new: boolean}>} */
  const results = new Map()
  const calls = new Set()
  for (const {message, new: isNew} of messages) {
    for (const one of message.parts) {
      if (one.type === 'tool_use') calls.add(one.id)
      else if (one.type === 'tool_output') results.set(one.id, {part: one, new: isNew})
    }
  }
  return messages.map(({message, n, new: isNew}) => {
    const parts = message.parts.filter((/** @type {any} */ one) => one.type !== 'tool_output' || !calls.has(one.id))
    if (!parts.length && message.parts.length) return null
    const {role} = message
    const span = role === 'assistant' ? run.spanOf(n) : null
    const used = span && span.kind === 'model' && span.n1 <= until ? [span.tokens ? `${count(span.tokens)} tok` : '', span.cost ? spent(span.cost) : ''].filter(Boolean).join(' · ') : ''
    return h('section', {class: `turn ${role}${isNew ? ' fresh' : ''}`},
      h('div', {class: 'facts'}, h('h3', {}, role, isNew ? fresh() : null), used ? h('span', {class: 'soft'}, used) : null, copier(parts.length === 1 && parts[0].type === 'text' ? parts[0].text : message, id, 'the message')),
      parts.map((/** @type {any} */ one) => part(one, id, results.get(one.id))))
  })
}

/** @param {any} one @param {string} run @param {{part: any, new: boolean}} [result] of a call */
function part(one, run, result) {
  switch (one.type) {
    case 'text': return h('div', {class: 'part'}, viewed(one.text, {run, as: 'markdown'}))
    case 'tool_use': return h('details', {class: 'part call', open: !result || result.new},
      h('summary', {}, 'calls ', h('code', {}, one.tool), !result ? null : h('span', {class: result.part.error ? 'code' : 'soft'}, result.part.error ? ' failed' : ' answered'), result?.new ? fresh() : null),
      h('div', {class: 'facts'}, h('h4', {}, 'Arguments'), copier(one.input, run, 'the arguments')), viewed(one.input, {run}),
      one.fault ? h('p', {class: 'code'}, one.fault) : null,
      result ? output(result.part, run) : null)
    case 'tool_output': return h('div', {class: 'part'}, output(one, run))
    default: return h('div', {class: 'part'}, viewed(one, {run}))
  }
}

/** What a tool has answered. @param {any} one @param {string} run */
function output(one, run) {
  const value = one.error ?? one.output
  return h('div', {}, h('div', {class: 'facts'}, h('h4', {}, one.error ? 'The tool failed' : 'Result'), copier(value, run, 'the result')), viewed(value, {run}))
}

/** @param {any} event @param {string} run */
function raw(event, run) {
  const {payload, ...envelope} = event
  return h('div', {}, h('p', {class: 'facts'}, h('span', {class: 'soft'}, bytes(JSON.stringify(event).length)), copier(event, run, 'the event')), titled('payload', payload, {run}), titled('envelope', envelope, {run}))
}

const GIVEN = ['question', 'instruction', 'input', 'request', 'arguments', 'request_data', 'options', 'match', 'due', 'timeout_at', 'definition', 'start', 'reason', 'message', 'workflow', 'environment']

/** Members of events that people write, or a model writes for people. */
const PROSE = ['question', 'instruction', 'input', 'reason', 'message', 'output', 'result', 'results', 'value']

/** The input of something. @param {any} event @param {string} run */
function saw(event, run) {
  const payload = event.payload ?? {}
  const known = GIVEN.filter((name) => payload[name] !== undefined)
  if (event.type === 'run.accepted') {
    const {files = {}} = payload.start ?? {}, source = payload.definition?.source ?? ''
    return [
      titled('Input', payload.start?.input ?? payload.start?.arguments ?? null, {run, as: 'markdown'}),
      payload.start?.model ? section('Model', viewed(payload.start.model, {run})) : null,
      Object.keys(files).length ? section('Files', ...Object.entries(files).map(([name, content]) => file(name, content, run))) : null,
      section('Definition', typeof source === 'string' ? h('div', {}, copier(source, run, 'the definition'), h('pre', {class: 'source'}, source)) : viewed(source, {run})),
    ]
  }
  if (!known.length) return Object.keys(payload).length ? [viewed(payload, {run})] : [nothing('No input')]
  return known.map((name) => titled(name.replaceAll('_', ' '), payload[name], {run, as: PROSE.includes(name) ? 'markdown' : 'text'}))
}

/** The result of something. @param {any} first @param {any} last @param {any} own @param {Looked} looked */
function said(first, last, own, looked) {
  const run = looked.id
  if (!last) {
    const {type} = first
    if (type === 'model.call') return [h('p', {class: 'facts soft'}, 'The model is answering.'), h('p', {class: 'soft lacks', hidden: !looked.lacks}, 'What the model said before this page was connected is not available. The whole answer is shown when it is complete.'), h('pre', {class: 'speaking', dir: 'auto'}, looked.said)]
    const waits = ['human.asked', 'tool.call', 'effect.call', 'timer.set', 'signal.awaited', 'child.start', 'node.enter', 'run.accepted', 'run.paused'].includes(type)
    return waits ? [nothing('No result yet', 'It is still in progress.')] : saw(own, run)
  }
  const payload = last.payload ?? {}
  const {text: words, data, toolCalls, usage, output, results, result, value, told, response_data: response} = payload
  const parts = [
    words ? titled('Text', words, {run, as: 'markdown'}) : null,
    data !== undefined ? titled('Data', data, {run, as: 'markdown'}) : null,
    toolCalls?.length ? section('Tool calls', ...toolCalls.map((/** @type {any} */ one) => part({type: 'tool_use', ...one}, run))) : null,
    ...Object.entries({output, value, result, told, results, 'response data': response}).map(([name, one]) => (one === undefined ? null : titled(name, one, {run, as: last.type !== 'tool.result' && PROSE.includes(name) ? 'markdown' : 'text'}))),
    usage ? section('Usage', viewed(usage, {run})) : null,
  ].filter(Boolean)
  if (parts.length) return parts
  return payload.error ? wrong([last], run) : Object.keys(payload).length ? [viewed(payload, {run})] : [nothing('No result', 'It ended without a value.')]
}

/** Why it failed. @param {any[]} events @param {string} run */
function wrong(events, run) {
  const found = events.map((event) => event?.payload?.error ?? (event?.type === 'effect.cancelled' ? event.payload.cause : null)).find(Boolean)
  if (!found) return [nothing('No error', 'Nothing went wrong here.')]
  const chain = []
  for (let one = found; one; one = one.previous) chain.push(one)
  return chain.map((one, i) => h(
    'section',
    {class: 'wrong'},
    h('h3', {}, i ? 'before that' : 'failed'),
    h('p', {}, h('code', {class: 'code'}, one.code), one.retryable === true ? h('span', {class: 'soft'}, ' may be tried again') : null),
    one.message ? viewed(one.message, {run}) : null,
    one.message ? copier(one.message, run, 'the message') : null,
    one.code ? remedy(one.code) : null,
    one.path ? h('p', {class: 'soft'}, 'at ', h('code', {}, one.path)) : null,
    one.details !== undefined && one.details !== null ? viewed(one.details, {run}) : null,
  ))
}

