// Verbs: what one tells a run. What destroys asks first, and has no key.

import {path, readsOnly, send, to} from '../lib/api.js'
import {h} from '../lib/dom.js'
import {valueOf} from '../lib/numbers.js'
import {over} from '../lib/status.js'
import {go} from './going.js'
import {dialog, failure, field} from './parts.js'

const ENDED_BADLY = ['failed', 'expired', 'cancelled']

/** @param {string} run @param {string} status @param {import('../lib/run.js').Run} told */
export function verbs(run, status, told) {
  const like = h('a', {class: 'button', href: to(['start'], {like: run})}, 'Start like it')
  const compare = h('button', {onclick: () => beside(run)}, 'Compare…')
  if (readsOnly) return h('span', {class: 'verbs'}, exports(run), compare)
  const again = atOnce('Run again', async () => forked(run, {again: true}))
  const retry = ENDED_BADLY.includes(status) ? atOnce('Retry', async () => forked(run, {failure: true})) : null
  if (over(status)) return h('span', {class: 'verbs'}, retry, again, exports(run), compare, like)
  const tell = (/** @type {string} */ verb, /** @type {object} */ body = {}) => send(['runs', run, verb], {by: 'page', ...body})
  const now = (/** @type {string} */ word, /** @type {string} */ verb) => atOnce(word, () => tell(verb))
  const open = [...told.open.values()]
  const paused = open.some((one) => one.kind === 'pause'), asked = open.find((one) => one.kind === 'human')
  return h(
    'span',
    {class: 'verbs'},
    asked ? h('a', {class: 'button primary', href: to(['inbox'], {run, key: asked.key})}, 'Answer…') : null,
    paused ? now('Resume', 'resume') : now('Pause', 'pause'),
    h('button', {onclick: () => signal(tell)}, 'Signal…'),
    h('button', {onclick: () => ending(run, tell)}, 'Cancel…'),
    again, exports(run), compare, like,
  )
}

/** A button that does what it says, and tells when it could not. @param {string} word @param {() => Promise<unknown>} act */
function atOnce(word, act) {
  const button = h('button', {onclick: async () => {
    button.disabled = true
    try {
      await act()
    } catch (error) {
      dialog(`${word}: it was refused`, [failure(error)], 'So be it', async () => {})
    } finally {
      button.disabled = false
    }
  }}, word)
  return button
}

/** @typedef {{at?: number, node?: string, outcome?: boolean}} Place of a fork: behind an event, perhaps an outcome; or as a node is entered */

/** Fork a run, and go to the fork. @param {string} run @param {object} asked */
async function forked(run, asked) {
  const {run_id: fork} = await send(['runs', run, 'fork'], asked)
  go(to(['runs', fork]))
}

/** @param {string} run @param {Place} place */
export function forking(run, {at, node, outcome}) {
  const said = h('textarea', {rows: '4', spellcheck: 'false', placeholder: '{"data": {"hits": 0}}'})
  const model = h('input', {type: 'text', autocomplete: 'off', placeholder: 'as before'})
  const variables = h('textarea', {rows: '2', spellcheck: 'false', placeholder: '{"name": "value"}'})
  const where = node ? ['It goes on as ', h('code', {}, node), ' is entered'] : [`It goes on behind event ${at}`]
  dialog(`Fork ${run}`, [
    h('p', {}, ...where, ', as a run of its own; this one stays as it is.'),
    outcome ? field('What the event says instead, as JSON', said) : null,
    field('Model, from there on', model),
    field('Variables that are set there, as JSON (not of a workflow, which has none)', variables),
  ], 'Fork', async () => {
    await forked(run, {
      ...(node ? {from: node} : {at}),
      ...(said.value.trim() ? {outcome: valueOf(said.value)} : {}),
      ...(variables.value.trim() ? {variables: valueOf(variables.value)} : {}),
      ...(model.value.trim() ? {start: {model: model.value.trim()}} : {}),
    })
  })
}

const FILES = [['jsonl', 'events, line by line'], ['jaeger', 'trace, for Jaeger'], ['svg', 'drawing']]

/** @param {string} run */
const exports = (run) => h('details', {class: 'menu'}, h('summary', {class: 'button'}, 'Export'), h('ul', {}, FILES.map(([form, word]) => h('li', {}, h('a', {href: `${path('runs', run)}/export.${form}`, download: `${run}.${form === 'jaeger' ? 'json' : form}`}, word)))))

/** Compare with another run. @param {string} run */
export function beside(run) {
  const other = h('input', {type: 'text', required: true, autocomplete: 'off'})
  dialog(`Compare ${run}`, [field('with the run', other)], 'Compare', async () => go(to(['runs', run, 'diff', other.value.trim()])))
}

/** @param {(verb: string, body: object) => Promise<any>} tell */
function signal(tell) {
  const name = h('input', {type: 'text', required: true, autocomplete: 'off'})
  const data = h('textarea', {rows: '4', spellcheck: 'false', placeholder: '{"eur": 3}'})
  dialog('Signal the run', [field('Name', name), field('Data, as JSON', data)], 'Signal', async () => {
    await tell('signal', {name: name.value, ...(data.value.trim() ? {data: valueOf(data.value)} : {})})
  })
}

/** @param {string} run @param {(verb: string, body: object) => Promise<any>} tell */
function ending(run, tell) {
  const reason = h('input', {type: 'text', placeholder: 'why, for whoever reads the log'})
  const kill = h('input', {type: 'checkbox'})
  dialog(`Cancel ${run}?`, [
    h('p', {}, 'It unwinds, cleans up, and ends cancelled. What it has done stays done.'),
    field('Reason', reason),
    h('label', {class: 'check'}, kill, 'at once, without clean-up (kill)'),
  ], 'Cancel the run', async () => {
    await tell(kill.checked ? 'kill' : 'cancel', {reason: reason.value})
  }, {dangerous: true})
}
