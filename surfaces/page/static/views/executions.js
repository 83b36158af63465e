// Executions of the same node as a table: of the items of a fan-out, of the rounds of a loop.

import {fill, h} from '../lib/dom.js'
import {dollars, duration, grouped, short} from '../lib/format.js'
import {cell, List, row as line} from '../lib/list.js'
import {added, foremost, placeOf} from '../lib/run.js'
import {chip, look} from '../lib/status.js'
import {isBlob} from '../lib/value.js'

/** @typedef {import('../lib/run.js').Run} Run */
/** @typedef {import('../lib/run.js').Span} Span */
/** @typedef {{run: Run, n: number, name: string, members: Span[], chosen: Span|null, until: number}} Executed `until`: when what is open has not ended, that is now */

const ROW_PX = 26
/** How long the rows that are seen stay before their inputs are asked for. */
const REST_MS = 100
const INPUT_MAX = 160
const INPUTS_KEPT_MAX = 2_000
/** What the errors of all items of a step in Python begin with. */
const STEP_RAISED = /^step \S+ raised /
/** Columns by which rows are sorted, and whether the greatest comes first. @type {[string, boolean|null][]} */
const COLUMNS = [['Index', false], ['Input', null], ['Outcome', false], ['Duration', true], ['Cost', true], ['Error', null]]

/** Whether something has gone wrong. @param {string} outcome */
const wrong = (outcome) => look(outcome)[0] === 'failed'

export class Executions {
  /** @type {List|undefined} */
  list

  /** @param {{chosen: (span: Span) => void, event: (n: number) => Promise<any>, closed?: () => void}} given `event`: an event whole */
  constructor(given) {
    this.given = given
    /** @type {Executed|null} */
    this.of = null
    /** @type {Span[]} */
    this.rows = []
    /** What each was given, by the event that began it; null while it is asked for. @type {Map<number, {value: any}|null>} */
    this.inputs = new Map()
    /** The members by which inputs differ from the first one that was read. @type {Set<string>} */
    this.differing = new Set()
    /** @type {any} the first input */
    this.sample = undefined
    /** With what each has failed, by the event that ended it. @type {Map<number, string>} */
    this.errors = new Map()
    this.by = 'Index'
    this.down = false
    this.shown = ''
    this.resting = 0
    this.element = h('section', {class: 'executions', 'aria-label': 'Executions', hidden: true})
  }

  /** Most runs have no use for its elements. */
  build() {
    const {given} = this
    this.head = h('div', {class: 'execution-row head', role: 'row'}, COLUMNS.map(([word, falling], i) => h('span', {role: 'columnheader', class: `c${i}`},
      falling === null ? word : h('button', {class: 'sorts', title: `Sort by ${word.toLowerCase()}`, onclick: () => {
        this.down = word === this.by ? !this.down : falling
        this.by = word
        this.renew()
      }}, word))))
    this.title = h('h2', {})
    this.failed = h('input', {type: 'checkbox', onchange: () => this.renew()})
    this.counted = h('span', {class: 'soft', role: 'status'})
    this.list = new List({
      label: 'Executions', height: ROW_PX, head: this.head, row: (index) => this.row(index),
      name: (index) => this.rows[index].id,
      chosen: (index) => given.chosen(this.rows[index]),
      drawn: () => this.rest(),
    })
    fill(this.element,
      h('div', {class: 'bar small'}, this.title, h('label', {class: 'check'}, this.failed, 'failed only'), this.counted, h('span', {class: 'stretch'}), given.closed ? h('button', {class: 'quiet', 'aria-label': 'Close the list', onclick: given.closed}, '✕') : null),
      this.list.element)
  }

  /** @param {Executed|null} of */
  show(of) {
    const other = of?.name !== this.of?.name || of?.run !== this.of?.run
    this.of = of
    this.element.hidden = !of
    if (!of) {
      if (other) this.list.set(0)
      return
    }
    if (!this.list) this.build()
    if (other) {
      this.forget()
      this.failed.checked = false
    }
    const {run, n, name, members, chosen} = of
    const shown = [run.version, n, name, members.length, this.by, this.down, this.failed.checked].join()
    const anew = other || shown !== this.shown
    if (anew) {
      this.shown = shown
      this.arrange(of)
    }
    const active = chosen ? this.rows.indexOf(chosen) : -1
    if (anew) this.list.set(this.rows.length, {active})
    else if (active !== this.list.active) this.list.mark(active)
  }

  /** Show the same in another order, or fewer of it. */
  renew() {
    this.show(this.of)
  }

  /** @param {Executed} of */
  arrange({run, n, name, members, until}) {
    const {by, down} = this
    fill(this.title, `${grouped(members.length)} × ${name}`)
    COLUMNS.forEach(([word], i) => {
      if (word === by) this.head.children[i].setAttribute('aria-sort', down ? 'descending' : 'ascending')
      else this.head.children[i].removeAttribute('aria-sort')
    })
    const outcomeOf = (/** @type {Span} */ one) => run.outcomeAt(run.lastTry(one, n), n)
    const failed = members.filter((one) => wrong(outcomeOf(one)))
    this.element.classList.toggle('errs', failed.length > 0)
    this.element.classList.toggle('costs', members.some((one) => costOf(one)))
    const found = this.failed.checked ? failed : members
    this.counted.textContent = found.length === members.length ? '' : grouped(found.length)
    /** @type {Record<string, (one: Span) => number[]>} */
    const keys = {
      Index: placeOf, Outcome: (one) => [foremost(outcomeOf(one))],
      Duration: (one) => [this.lasted(one)], Cost: (one) => [costOf(one)?.usd ?? 0],
    }
    const placed = found.map((one) => ({one, key: keys[by](one)})).sort((a, b) => (down ? compared(b.key, a.key) : compared(a.key, b.key)) || a.one.n0 - b.one.n0)
    this.rows = placed.map(({one}) => one)
  }

  /** @param {number} index */
  row(index) {
    const {run, n} = /** @type {Executed} */ (this.of)
    const one = this.rows[index], input = this.inputOf(one), last = run.lastTry(one, n), cost = costOf(one)
    const tries = 1 + one.tries.filter((each) => each.kind !== 'timer' && each.n0 <= n).length
    const error = this.errors.get(last.n1) ?? ''
    return line('execution-row', [
      numbered(one), cell({title: input, dir: 'auto'}, input),
      tries > 1 ? h('span', {}, chip(run.outcomeAt(last, n)), h('span', {class: 'soft'}, ` ${tries} tries`)) : chip(run.outcomeAt(last, n)),
      duration(this.lasted(one) / 1000), cost ? dollars(cost) : '', cell({title: error, dir: 'auto'}, error),
    ])
  }

  /** How long an item has taken, with all of its tries. @param {Span} one */
  lasted(one) {
    const {run, n, until} = /** @type {Executed} */ (this.of)
    const {n1, t1} = run.lastTry(one, n)
    return run.lasted(one.tries.length ? {...one, n1, t1} : one, n, until)
  }

  /** What an item was given, in one line: of objects the members that are not the same for all. @param {Span} one */
  inputOf(one) {
    const value = this.inputs.get(one.n0)?.value
    if (value === null || value === undefined) return ''
    if (isBlob(value)) return '…'
    const shown = this.differing.size && isObject(value) ? Object.fromEntries(Object.entries(value).filter(([name]) => this.differing.has(name))) : value
    return short(typeof shown === 'string' ? shown : JSON.stringify(shown), INPUT_MAX)
  }

  /** Take what one was given. @param {number} n @param {any} value @returns {boolean} whether all are shown differently now */
  learn(n, value) {
    this.inputs.set(n, {value})
    if (!isObject(value)) return false
    this.sample ??= value
    const before = this.differing.size
    for (const name of new Set([...Object.keys(this.sample), ...Object.keys(value)])) {
      if (!this.differing.has(name) && JSON.stringify(value[name]) !== JSON.stringify(this.sample[name])) this.differing.add(name)
    }
    return this.differing.size > before
  }

  forget() {
    this.inputs.clear()
    this.errors.clear()
    this.differing.clear()
    this.sample = undefined
  }

  /** Time goes on for what is open. @param {number} until */
  tick(until) {
    if (!this.of) return
    const {n} = this.of
    this.of.until = until
    this.list.renew([...this.list.made.keys()].filter((index) => this.rows[index] && this.of?.run.lastTry(this.rows[index], n).n1 > n))
  }

  rest() {
    clearTimeout(this.resting)
    this.resting = setTimeout(() => this.ask(), REST_MS)
  }

  /** Ask for the inputs of what is seen. */
  ask() {
    const {of, inputs, errors} = this
    if (!of) return
    if (inputs.size > INPUTS_KEPT_MAX) this.forget()
    const {run, n: until} = of
    for (const index of this.list.made.keys()) {
      const one = this.rows[index]
      if (!one) continue
      const renew = (/** @type {boolean} */ all) => this.list.renew([...this.list.made.keys()].filter((index) => all || this.rows[index] === one))
      if (!inputs.has(one.n0)) {
        inputs.set(one.n0, null)
        this.given.event(one.n0).then((event) => renew(this.learn(one.n0, givenTo(event.payload ?? {}))), () => inputs.delete(one.n0))
      }
      const last = run.lastTry(one, until)
      if (last.n1 > until || !wrong(last.outcome) || errors.has(last.n1)) continue
      errors.set(last.n1, '')
      this.given.event(last.n1).then((event) => {
        errors.set(last.n1, errorOf(event.payload ?? {}))
        renew(false)
      }, () => errors.delete(last.n1))
    }
  }

  close() {
    clearTimeout(this.resting)
    this.list?.close()
  }
}

/** @param {number[]} a @param {number[]} b */
function compared(a, b) {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] - (b[i] ?? -1)
  return a.length - b.length
}

/** What tells an execution from the others: its index, and how often its path was entered. @param {Span} one */
export function numbered(one) {
  const place = placeOf(one).join('.')
  return place && one.iteration > 1 ? `${place} #${one.iteration}` : place || `#${one.iteration}`
}

/** What something was given: of a step its arguments. @param {any} payload of the event that began it */
function givenTo({input, request, child, question}) {
  return input ?? (request?.step && request.arguments ? request.arguments : request) ?? question ?? child
}

/** With what something has failed, in one line. @param {any} payload of the event that ended it */
function errorOf({error, value}) {
  const {code = '', message} = error ?? value?.result ?? {}
  return short(String(message ?? '').replace(STEP_RAISED, '') || code, INPUT_MAX)
}

/** @param {any} value */
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value) && !isBlob(value)

/** What all tries of an item have cost. @param {Span} one */
const costOf = (one) => one.tries.reduce((sum, {cost}) => (cost ? added(sum, cost) : sum), one.cost)
