// Two runs beside each other: where they part first, then what is different.

import {get, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {count, duration} from '../lib/format.js'
import {chip, look} from '../lib/status.js'
import {tree} from '../lib/value.js'
import {failure, nothing} from './parts.js'

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
    const parts = Object.entries(found).filter(([name, value]) => !['left', 'right', 'equal', 'shared', 'sight'].includes(name) && value !== null && (typeof value !== 'object' || Object.keys(value).length))
    const before = [...changed(found.shared), ...seen(found)]
    if (!parts.length && !before.length) return [nothing('Nothing is different', 'Both took the same way and came to the same.')]
    parts.sort(([a], [b]) => Number(b === 'parting') - Number(a === 'parting'))
    return [...before, ...parts.map(([name, value]) => h('section', {class: 'told'}, h('h2', {}, name.replaceAll('_', ' ')), differences(value)))]
  }
}

/** What two runs have in common. @param {string} left @param {any} shared */
function common(left, shared) {
  return h('p', {}, 'They have events 2 to ', h('a', {href: to(['runs', left], {n: shared.n})}, String(shared.n)), ' in common; what lies behind is told.')
}

/** What of it one of them has otherwise. @param {any} shared */
function changed(shared) {
  return (shared?.replaced ?? []).map((/** @type {any} */ one) => h('section', {class: 'told'}, h('h2', {}, `event ${one.n}, ${one.type} ${one.path}`), differences(one.payload)))
}

/** The first turn at which a model saw something else. @param {any} found */
function seen({left, right, sight}) {
  if (!sight) return []
  const link = (/** @type {string} */ run, /** @type {number} */ n) => h('a', {href: to(['runs', run], {n, tab: 'saw'})}, `event ${n}`)
  return [h('section', {class: 'told'}, h('h2', {}, 'what the models saw'), h('p', {}, `Something else first at ${sight.path || 'the run'}: `, link(left, sight.left), ' on the left, ', link(right, sight.right), ' on the right.'), differences(sight.request))]
}

/** @param {any} value @returns {HTMLElement} */
function differences(value) {
  const list = Array.isArray(value) ? value : null
  if (!list?.length || typeof list[0] !== 'object' || !('left' in list[0] || 'right' in list[0])) return tree(value, {open: 2})
  const where = Object.keys(list[0]).filter((name) => name !== 'left' && name !== 'right')
  return h('table', {}, h('thead', {}, h('tr', {}, [...where, 'left', 'right'].map((one) => h('th', {scope: 'col'}, one.replaceAll('_', ' '))))),
    h('tbody', {}, list.map((one) => h('tr', {}, where.map((name) => h('td', {}, typeof one[name] === 'object' ? tree(one[name]) : String(one[name] ?? ''))), ['left', 'right'].map((side) => h('td', {}, one[side] === undefined || one[side] === null ? h('span', {class: 'soft'}, '—') : tree(one[side], {open: 1})))))))
}

/** @param {string} left @param {string} right @param {any} one @param {any} other @param {any} found */
function summary(left, right, one, other, {shared, measures}) {
  const lasted = (/** @type {any} */ measure) => (measure.duration_s === null ? 'goes on' : duration(measure.duration_s))
  const tokens = (/** @type {any} */ measure) => count(measure.input_tokens + measure.output_tokens)
  const behind = shared ? ', behind it' : ''
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
