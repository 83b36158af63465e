// Verbs: commands to a run. Destructive ones ask for confirmation, and have no key.

import {get, path, readsOnly, send, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {read, valueOf} from '../lib/numbers.js'
import {ENDED_BADLY, over} from '../lib/status.js'
import {go} from './going.js'
import {dialog, failure, field} from './parts.js'

/** @param {string} run @param {string} status @param {import('../lib/run.js').Run} told */
export function verbs(run, status, told) {
  const like = h('a', {class: 'button', href: to(['start'], {like: run})}, 'Duplicate')
  const compare = h('button', {onclick: () => beside(run)}, 'Compare…')
  if (readsOnly) return h('span', {class: 'verbs'}, exports(run), compare)
  const again = atOnce('Run again', async () => forked(run, {again: true}))
  const retry = ENDED_BADLY.includes(status) ? atOnce('Retry', async () => forked(run, {failure: true})) : null
  if (over(status)) return h('span', {class: 'verbs'}, retry, again, exports(run), compare, like)
  const tell = (/** @type {string} */ verb, /** @type {object} */ body = {}) => send(['runs', run, verb], {by: 'page', ...body})
  const now = (/** @type {string} */ word, /** @type {string} */ verb, /** @type {object} */ body = {}) => atOnce(word, () => tell(verb, body))
  const open = [...told.open.values()]
  const paused = open.some((one) => one.kind === 'pause'), asked = open.find((one) => one.kind === 'human')
  return h(
    'span',
    {class: 'verbs'},
    asked ? h('a', {class: 'button primary', href: to(['inbox'], {run, key: asked.key})}, 'Answer…') : null,
    paused ? [now('Resume', 'resume'), now('Step', 'resume', {step: true})] : now('Pause', 'pause'),
    h('button', {onclick: () => signal(tell)}, 'Signal…'),
    h('button', {onclick: () => ending(run, tell)}, 'Cancel…'),
    again, exports(run), compare, like,
  )
}

/** A button that performs an action, and reports a failure. @param {string} word @param {() => Promise<unknown>} act */
function atOnce(word, act) {
  const button = h('button', {onclick: async () => {
    button.disabled = true
    try {
      await act()
    } catch (error) {
      dialog(`${word} was refused`, [failure(error)], 'Close', async () => {})
    } finally {
      button.disabled = false
    }
  }}, word)
  return button
}

/** @typedef {{at?: number, node?: string, outcome?: Record<string, any>, model?: string, definition?: {source: string, language: string}}} Place of a fork: after an event, of which an outcome has members that may be replaced; or at the entry of a node. `model`, `definition`: those of the run */

/** Fork a run, and go to the fork. @param {string} run @param {object} asked */
async function forked(run, asked) {
  const {run_id: fork} = await send(['runs', run, 'fork'], asked)
  go(to(['runs', fork]))
}

/** @param {string} run @param {Place} place */
export function forking(run, {at, node, outcome, model: before = '', definition}) {
  const recorded = outcome ? JSON.stringify(outcome, null, 2) : ''
  const said = h('textarea', {rows: '8', spellcheck: 'false', value: recorded})
  const model = h('input', {type: 'text', autocomplete: 'off', value: before})
  const variables = h('textarea', {rows: '2', spellcheck: 'false', placeholder: '{"name": "value"}'})
  const source = h('textarea', {rows: '12', spellcheck: 'false', value: definition?.source ?? ''})
  const where = node ? ['It continues at the entry of ', h('code', {}, node)] : [`It continues after event ${at}`]
  dialog(`Fork ${run}`, [
    h('p', {}, ...where, ', as a new run; this one is not changed.'),
    outcome ? field('Result, as JSON; only changed members are replaced', said) : null,
    field('Model, from there on', model),
    definition ? h('details', {}, h('summary', {}, 'Change prompts or other parts of the definition'), field('Definition', source, h('span', {class: 'told'}, 'What the run has done before this place has to stay as it is.'))) : null,
    field('Variables to set, as JSON (workflows have none)', variables),
  ], 'Fork', async () => {
    await forked(run, {
      ...(node ? {from: node} : {at}),
      ...(said.value.trim() && said.value !== recorded ? {outcome: changed(outcome ?? {}, read(said.value))} : {}),
      ...(variables.value.trim() ? {variables: valueOf(variables.value)} : {}),
      start: {
        ...(model.value.trim() && model.value.trim() !== before ? {model: model.value.trim()} : {}),
        ...(definition && source.value !== definition.source ? {definition: {source: source.value, language: definition.language}} : {}),
      },
    })
  })
}

/** The members that are not what they were. @param {Record<string, any>} before @param {any} now */
function changed(before, now) {
  if (now === null || typeof now !== 'object' || Array.isArray(now)) return now
  return Object.fromEntries(Object.entries(now).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name])))
}

/** Runs that are offered for a comparison: the latest. */
const OFFERED_MAX = 50

const FILES = [['jsonl', 'events, line by line'], ['jaeger', 'trace, for Jaeger'], ['svg', 'drawing']]

/** @param {string} run */
const exports = (run) => h('details', {class: 'menu'}, h('summary', {class: 'button'}, 'Export'), h('ul', {}, FILES.map(([form, word]) => h('li', {}, h('a', {href: `${path('runs', run)}/export.${form}`, download: `${run}.${form === 'jaeger' ? 'json' : form}`}, word))),
  h('li', {class: 'soft aside'}, 'The events open on any machine, without this server: ', h('code', {}, `callboard page ${run}.jsonl`))))

/** Compare with another run. @param {string} run */
export function beside(run) {
  const known = h('datalist', {id: 'runs-known'})
  const other = h('input', {type: 'text', required: true, autocomplete: 'off', list: known.id})
  get(['runs'], {limit: OFFERED_MAX}).then(({runs}) => fill(known, runs.filter((/** @type {any} */ one) => one.run !== run).map((/** @type {any} */ one) => h('option', {value: one.run}, `${one.definition} · ${one.status}`))), () => {})
  dialog(`Compare ${run}`, [field('with the run', other, known)], 'Compare', async () => go(to(['runs', run, 'diff', other.value.trim()])))
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
  const reason = h('input', {type: 'text', placeholder: 'why, recorded in the log'})
  const kill = h('input', {type: 'checkbox'})
  dialog(`Cancel ${run}?`, [
    h('p', {}, 'The run stops, cleans up, and ends as cancelled. Effects that have been carried out are not undone.'),
    field('Reason', reason),
    h('label', {class: 'check'}, kill, 'at once, without clean-up (kill)'),
  ], 'Cancel the run', async () => {
    await tell(kill.checked ? 'kill' : 'cancel', {reason: reason.value})
  }, {dangerous: true, leave: 'Keep it running'})
}
