// Two runs side by side: where they first diverge, then all differences.

import {get, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {count, duration, spent} from '../lib/format.js'
import {chip, look} from '../lib/status.js'
import {tree} from '../lib/value.js'
import {failure, nothing} from './parts.js'

/** What is told in places of its own. */
const OWN = ['left', 'right', 'equal', 'shared', 'sight', 'parting', 'measures']
const ROWS_MAX = 200
/** A longer stretch that two texts share is folded, except for so much around what differs. */
const ALIKE_MAX = 320
const AROUND_MAX = 100
/** Steps that are shown of what both did before they parted. */
const STEPS_BEFORE = 3

export class DiffView extends HTMLElement {
  /** @param {import('../lib/urls.js').Place} place */
  async show(place) {
    const [left, right] = place.names
    const sheet = h('div', {class: 'sheet scrolls'})
    fill(this, h('div', {class: 'bar'}, h('h1', {}, 'Two runs'), h('a', {href: to(['runs', left])}, left), h('span', {class: 'soft'}, 'and'), h('a', {href: to(['runs', right])}, right), h('a', {class: 'button', href: to(['runs', right, 'diff', left])}, 'Swap ⇄')), sheet)
    try {
      const [found, one, other] = await Promise.all([get(['diff'], {left, right}), get(['runs', left]), get(['runs', right])])
      fill(sheet, found.shared ? common(left, found.shared) : null, summary(left, right, one, other, found), ...this.told(found))
    } catch (error) {
      fill(sheet, failure(error))
    }
  }

  /** @param {any} found */
  told(found) {
    const parts = Object.entries(found).filter(([name, value]) => !OWN.includes(name) && differs(value))
    const before = [...changed(found.shared), ...seen(found)]
    const alike = found.equal && !before.length ? nothing('No differences', 'Both runs took the same path and have the same result.') : null
    const parting = found.parting ? parted(found.parting) : null
    return [alike, parting, ...before, ...parts.map(([name, value]) => part(name, value)), measured(found.measures)].filter((one) => one !== null)
  }
}

const part = (/** @type {string} */ name, /** @type {any} */ value) =>
  h('section', {class: 'told'}, h('h2', {}, name.replaceAll('_', ' ')), name === 'path' ? ways(value) : differences(value))

/** Whether there is a difference to show: two equal sides are none. @param {any} value */
function differs(value) {
  if (value === null || typeof value !== 'object') return value !== null
  const names = Object.keys(value)
  if (isPair(value)) return JSON.stringify(value.left) !== JSON.stringify(value.right)
  return names.length > 0
}

/** @param {any} value */
const isPair = (value) => Object.keys(value).sort().join() === 'left,right'

/** Where their paths first diverge, and why. @param {any} parting */
function parted({after, left, right, reasons}) {
  const words = (/** @type {any} */ value) => (Array.isArray(value) ? value.filter(Boolean).map(String).join(', ') : String(value ?? '')) || '—'
  const row = (/** @type {string} */ name, /** @type {any} */ ours, /** @type {any} */ theirs) => h('tr', {class: words(ours) === words(theirs) ? '' : 'other'}, h('th', {scope: 'row'}, name), h('td', {}, words(ours)), h('td', {}, words(theirs)))
  const rows = [row('continues with', left, right), row('because', reasons.left, reasons.right)]
  return h('section', {class: 'told'}, h('h2', {}, after ? `First difference: after ${after}` : 'First difference: at the beginning'), sides(['then', 'left', 'right'], rows, 0))
}

/** The executions of both, one below the other; where they are not the same stands out. @param {{left: string[], right: string[]}} path */
function ways({left, right}) {
  const steps = Array.from({length: Math.max(left.length, right.length)}, (_, i) => [left[i] ?? '', right[i] ?? ''])
  const parted = Math.max(steps.findIndex(([a, b]) => a !== b) - STEPS_BEFORE, 0)
  const shown = steps.slice(parted, parted + ROWS_MAX)
  const rows = shown.map(([a, b], i) => h('tr', {class: a === b ? '' : 'other'}, h('th', {scope: 'row'}, String(parted + i + 1)), h('td', {}, a), h('td', {}, b)))
  return sides(['step', 'left', 'right'], rows, steps.length - shown.length)
}

/** How long each lasted, and what it used: of the runs, and of what both have; what differs most comes first. @param {any} measures */
function measured({run, executions}) {
  const apart = (/** @type {any} */ {left, right}) => Math.abs((left?.duration_s ?? 0) - (right?.duration_s ?? 0))
  const all = [['run', run], ...Object.entries(executions).sort(([, a], [, b]) => apart(b) - apart(a))]
  const told = (/** @type {any} */ one) => one ? [one.duration_s === null ? 'running' : duration(one.duration_s), count(one.input_tokens + one.output_tokens), spent(one.cost)] : ['', '', '']
  const rows = all.slice(0, ROWS_MAX).map(([name, {left, right}]) => {
    const ours = told(left), theirs = told(right)
    return h('tr', {}, h('th', {scope: 'row'}, name), ours.flatMap((value, i) => [h('td', {}, value), h('td', {}, theirs[i])]))
  })
  const heads = ['what', 'took, left', 'right', 'tokens, left', 'right', 'cost, left', 'right']
  return h('section', {class: 'told'}, h('h2', {}, 'measures'), sides(heads, rows, all.length - rows.length))
}

/** @param {string[]} heads @param {HTMLElement[]} rows @param {number} more */
function sides(heads, rows, more) {
  return [
    h('table', {class: 'sides'}, h('thead', {}, h('tr', {}, heads.map((one) => h('th', {scope: 'col'}, one)))), h('tbody', {}, rows)),
    more ? h('p', {class: 'soft'}, `and ${count(more)} more`) : null,
  ]
}

/** What two runs have in common. @param {string} left @param {any} shared */
function common(left, shared) {
  return h('p', {}, 'They have events 2 to ', h('a', {href: to(['runs', left], {n: shared.n})}, String(shared.n)), ' in common; the differences are in later events.')
}

/** Shared events that one of them has changed. @param {any} shared */
function changed(shared) {
  return (shared?.replaced ?? []).map((/** @type {any} */ one) => h('section', {class: 'told'}, h('h2', {}, `event ${one.n}, ${one.type} ${one.path}`), differences(one.payload)))
}

/** The first turn at which a model saw something else. @param {any} found */
function seen({left, right, sight}) {
  if (!sight) return []
  const link = (/** @type {string} */ run, /** @type {number} */ n) => h('a', {href: to(['runs', run], {at: n})}, `event ${n}`)
  return [h('section', {class: 'told'}, h('h2', {}, 'what the models saw'), h('p', {}, `First difference at ${sight.path || 'the run'}: `, link(left, sight.left), ' on the left, ', link(right, sight.right), ' on the right.'), differences(sight.request))]
}

/** @typedef {{where: string, left?: any, right?: any, marks?: {kind: string, text: string}[]}} Row what differs in one place */

/** @param {any} value */
function differences(value) {
  const found = [...rows('', value)], shown = found.slice(0, ROWS_MAX)
  return sides(['where', 'left', 'right'], shown.map(({where, left, right, marks}) => h('tr', {}, h('th', {scope: 'row'}, where || 'the whole value'),
    marks ? ['removed', 'added'].map((kind) => h('td', {}, marked(marks, kind))) : [left, right].map((one) => h('td', {}, one === undefined || one === null ? h('span', {class: 'soft'}, '—') : tree(one, {open: 1}))))), found.length - shown.length)
}

/** The places of whatever is compared, each with the values of both sides. @param {string} where @param {any} value @returns {Iterable<Row>} */
function* rows(where, value) {
  if (value === null || typeof value !== 'object') return
  if (Array.isArray(value)) for (const one of value) yield* rows(where, one)
  else if (isPair(value)) {
    if (differs(value)) yield {where, ...value}
  } else if ('pointer' in value) yield {...value, where: where + value.pointer}
  else {
    const {path, iteration, field, text, marks, ...others} = value
    const of = path === undefined ? join(where, field) : iteration > 1 ? `${path}#${iteration}` : path
    for (const [name, one] of Object.entries(others)) {
      // A text in the definition is its own origin.
      if (name === 'origin' && marks?.every((/** @type {any} */ part) => part.kind === 'added' || one.left?.includes(part.text))) continue
      const [, kind, how] = name.match(/^(nodes|edges)_(removed|added)$/) ?? []
      if (kind) for (const item of one) yield {where: join(of, kind), [how === 'added' ? 'right' : 'left']: item}
      else yield* rows(join(of, name === 'nodes_changed' ? 'nodes' : name), one)
    }
    if (marks) yield {where: join(of, 'text'), marks}
    else for (const line of text ?? []) if (line[0] !== '@') yield {where: join(of, 'text'), [line[0] === '+' ? 'right' : 'left']: line.slice(1), ...(line[0] === ' ' ? {right: line.slice(1)} : {})}
  }
}

const join = (/** @type {string} */ where, /** @type {string|undefined} */ name = '') => [where, name].filter(Boolean).join(' · ')

/** One side of two texts; long stretches that both have are folded. @param {{kind: string, text: string}[]} marks @param {string} side */
function marked(marks, side) {
  return h('span', {class: 'text', dir: 'auto'}, marks.flatMap(/** @returns {(Node|string)[]} */ ({kind, text}, i) => (kind === 'equal' ? alike(text, i > 0, i < marks.length - 1) : kind === side ? [h(kind === 'added' ? 'ins' : 'del', {}, text)] : [])))
}

/** @param {string} text @param {boolean} after whether a change is before it @param {boolean} before whether one follows */
function alike(text, after, before) {
  if (text.length <= ALIKE_MAX) return [text]
  const begin = after ? (text.match(/^[^]{80}\S{0,20}/u)?.[0] ?? '') : '', end = before ? (text.slice(-2 * AROUND_MAX).match(/\S{0,20}[^]{80}$/u)?.[0] ?? '') : ''
  const folded = text.slice(begin.length, text.length - end.length)
  const button = h('button', {class: 'quiet', onclick: () => button.replaceWith(folded)}, `⋯ ${count(folded.length)} characters alike ⋯`)
  return [begin, button, end]
}

/** @param {string} left @param {string} right @param {any} one @param {any} other @param {any} found */
function summary(left, right, one, other, {shared, measures}) {
  const lasted = (/** @type {any} */ measure) => (measure.duration_s === null ? 'running' : duration(measure.duration_s))
  const tokens = (/** @type {any} */ measure) => count(measure.input_tokens + measure.output_tokens)
  const behind = shared ? ', after it' : ''
  const {left: ours, right: theirs} = measures.run
  const rows = [
    ['status', chip(one.status), chip(other.status), look(one.status)[2] !== look(other.status)[2]],
    ['definition', `${one.definition} ${one.definition_hash?.slice(0, 12)}`, `${other.definition} ${other.definition_hash?.slice(0, 12)}`, one.definition_hash !== other.definition_hash],
    [`took${behind}`, lasted(ours), lasted(theirs), false],
    [`tokens${behind}`, tokens(ours), tokens(theirs), tokens(ours) !== tokens(theirs)],
    ['events', String(one.last_n), String(other.last_n), one.last_n !== other.last_n],
    ['error', one.error?.code ?? '', other.error?.code ?? '', one.error?.code !== other.error?.code],
  ]
  return h('table', {class: 'sides'}, h('thead', {}, h('tr', {}, [h('span', {class: 'heard'}, 'what'), left, right].map((name) => h('th', {scope: 'col'}, name)))),
    h('tbody', {}, rows.map(([name, a, b, other]) => h('tr', {class: other ? 'other' : ''}, h('th', {scope: 'row'}, name), h('td', {}, a), h('td', {}, b, other ? h('span', {class: 'heard'}, ' (different)') : null)))))
}

customElements.define('cb-diff', DiffView)
