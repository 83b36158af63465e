// Executions of the same node as a table: of the items of a fan-out, of the rounds of a loop.

import {fill, h} from '../lib/dom.js'
import {dollars, duration, grouped, short} from '../lib/format.js'
import {cell, List, row as line} from '../lib/list.js'
import {foremost, placeOf} from '../lib/run.js'
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
/** Columns by which rows are sorted, and whether the greatest comes first. @type {[string, boolean|null][]} */
const COLUMNS = [['Index', false], ['Input', null], ['Outcome', false], ['Duration', true], ['Cost', true]]

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
    /** What is asked for of each, by the event that began it. @type {Map<number, string>} */
    this.inputs = new Map()
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
      this.inputs.clear()
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
    const found = this.failed.checked ? members.filter((one) => wrong(run.outcomeAt(one, n))) : members
    this.counted.textContent = found.length === members.length ? '' : grouped(found.length)
    /** @type {Record<string, (one: Span) => number[]>} */
    const keys = {
      Index: placeOf, Outcome: (one) => [foremost(run.outcomeAt(one, n))],
      Duration: (one) => [run.lasted(one, n, until)], Cost: (one) => [one.cost?.usd ?? 0],
    }
    const placed = found.map((one) => ({one, key: keys[by](one)})).sort((a, b) => (down ? compared(b.key, a.key) : compared(a.key, b.key)) || a.one.n0 - b.one.n0)
    this.rows = placed.map(({one}) => one)
  }

  /** @param {number} index */
  row(index) {
    const {run, n, until} = /** @type {Executed} */ (this.of)
    const one = this.rows[index], input = this.inputs.get(one.n0) ?? ''
    return line('execution-row', [
      numbered(one), cell({title: input, dir: 'auto'}, input), chip(run.outcomeAt(one, n)), duration(run.lasted(one, n, until) / 1000), one.cost ? dollars(one.cost) : '',
    ])
  }

  /** Time goes on for what is open. @param {number} until */
  tick(until) {
    if (!this.of) return
    const {n} = this.of
    this.of.until = until
    this.list.renew([...this.list.made.keys()].filter((index) => (this.rows[index]?.n1 ?? 0) > n))
  }

  rest() {
    clearTimeout(this.resting)
    this.resting = setTimeout(() => this.ask(), REST_MS)
  }

  /** Ask for the inputs of what is seen. */
  ask() {
    const {of, inputs} = this
    if (!of) return
    if (inputs.size > INPUTS_KEPT_MAX) inputs.clear()
    for (const index of this.list.made.keys()) {
      const n = this.rows[index]?.n0
      if (!n || inputs.has(n)) continue
      inputs.set(n, '')
      this.given.event(n).then((event) => {
        inputs.set(n, inputOf(event.payload ?? {}))
        this.list.renew([...this.list.made.keys()].filter((index) => this.rows[index]?.n0 === n))
      }, () => inputs.delete(n))
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

/** What something was given, in one line. @param {any} payload of the event that began it */
function inputOf({input, request, child, question}) {
  const value = input ?? request ?? question ?? child
  if (value === null || value === undefined) return ''
  if (isBlob(value)) return '…'
  return short(typeof value === 'string' ? value : JSON.stringify(value), INPUT_MAX)
}
