// Verbs: commands to a run. Destructive ones ask for confirmation, and have no key.

import {get, path, readsOnly, Refused, send, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {tell as tellPlaces} from '../lib/form.js'
import {read, valueOf} from '../lib/numbers.js'
import {ENDED_BADLY, over} from '../lib/status.js'
import {go} from './going.js'
import {dialog, failure, field, lined} from './parts.js'

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

/** @typedef {{n: number, index: number, calls: any[]}} Call of a tool: which of those that event `n`, a turn of a model, has asked for */
/** @typedef {{at?: number, node?: string, outcome?: Record<string, any>, call?: Call, model?: string, definition?: {source: string, language: string}, instruction?: string, nodes?: {id: string, name: string}[], breakpoints?: string[]}} Place of a fork: after an event, of which an outcome has members that may be replaced; or at the entry of a node, which has an `instruction`. `model`, `definition`, `nodes`, `breakpoints`: those of the run */

/** Fork a run, and go to the fork. @param {string} run @param {object} asked */
async function forked(run, asked) {
  const {run_id: fork} = await send(['runs', run, 'fork'], asked)
  go(to(['runs', fork]))
}

/** @param {string} run @param {Place} place */
export function forking(run, {at, node, outcome, call, model: before = '', definition, instruction, nodes = [], breakpoints = []}) {
  /** @type {import('../lib/fields.js').Fields['places']} */
  const places = new Map()
  const asked = (/** @type {string} */ where, /** @type {string} */ label, /** @type {HTMLInputElement|HTMLTextAreaElement} */ input, /** @type {(Node|null)[]} */ ...more) => {
    const problem = h('span', {class: 'problem', id: `${where}-problem`})
    places.set(where, {problem, input})
    input.setAttribute('aria-describedby', problem.id)
    return h('div', {class: 'fields'}, field(label, input, ...more), problem)
  }
  const area = (/** @type {string} */ rows, /** @type {string} */ value, /** @type {object} */ more = {}) => h('textarea', {rows, spellcheck: 'false', value, ...more})
  const called = call?.calls[call.index]
  const recorded = outcome ? JSON.stringify(outcome, null, 2) : called ? JSON.stringify(called.input, null, 2) : ''
  const said = area('8', recorded)
  const model = h('input', {type: 'text', autocomplete: 'off', value: before})
  const variables = area('2', '', {placeholder: '{"name": "value"}'})
  const source = area('12', definition?.source ?? '')
  const faults = h('ul', {class: 'problem'})
  let stands = definition && instruction ? standing(definition.source, instruction) : undefined
  const instructs = area('4', instruction ?? '', {oninput: () => {
    const next = stands?.startsWith(':') ? `: ${JSON.stringify(instructs.value)}\n` : JSON.stringify(instructs.value)
    source.value = source.value.replace(stands ?? '', () => next)
    stands = next
  }})
  const pauses = nodes.map(({id, name}) => {
    const box = h('input', {type: 'checkbox', value: id})
    box.checked = breakpoints.includes(id)
    return {id, box, element: h('label', {class: 'check'}, box, name && name !== id ? `${id} (${name})` : id)}
  })
  // Those of nodes that are not listed are kept.
  const unlisted = breakpoints.filter((id) => !nodes.some((one) => one.id === id))
  const stop = h('span', {class: 'problem'})
  places.set('breakpoints', {problem: stop, input: null})
  const edited = h('details', {}, h('summary', {}, 'Change prompts or other parts of the definition'), field('Definition', source, h('span', {class: 'told'}, 'What the run has done before this place has to stay as it is.')), faults)
  const where = node ? ['It continues at the entry of ', h('code', {}, node)] : [`It continues after event ${at}`]
  dialog(`Fork ${run}`, [
    h('p', {}, ...where, ', as a new run; this one is not changed.'),
    outcome ? asked('fork.outcome', 'Result, as JSON; only changed members are replaced', said) : null,
    called ? asked('fork.outcome', `Arguments of ${called.tool}, as JSON`, said, h('span', {class: 'told'}, `With other arguments it continues after event ${call?.n}: all calls of that turn are made again.`)) : null,
    stands ? field(`Instruction of ${node}`, instructs) : null,
    asked('model', 'Model, from there on', model),
    pauses.length ? h('details', {open: breakpoints.length > 0}, h('summary', {}, 'Pause before nodes (breakpoints)'), h('div', {class: 'fields'}, pauses.map(({element}) => element), stop)) : null,
    definition ? edited : null,
    asked('fork.variables', 'Variables to set, as JSON (workflows have none)', variables),
  ], 'Fork', async () => {
    const changes = said.value.trim() !== '' && said.value !== recorded
    const paused = [...unlisted, ...pauses.filter(({box}) => box.checked).map(({id}) => id)]
    try {
      await forked(run, {
        ...(node ? {from: node} : {at: call && changes ? call.n : at}),
        ...(changes ? {outcome: call ? {toolCalls: call.calls.map((one, i) => (i === call.index ? {...one, input: read(said.value)} : one))} : changed(outcome ?? {}, read(said.value))} : {}),
        ...(variables.value.trim() ? {variables: valueOf(variables.value)} : {}),
        start: {
          ...(model.value.trim() && model.value.trim() !== before ? {model: model.value.trim()} : {}),
          ...(definition && source.value !== definition.source ? {definition: {source: source.value, language: definition.language}} : {}),
          ...(JSON.stringify(paused) !== JSON.stringify([...unlisted, ...nodes.map(({id}) => id).filter((id) => breakpoints.includes(id))]) ? {breakpoints: paused} : {}),
        },
      })
    } catch (error) {
      const problems = error instanceof Refused ? error.problems : []
      tellPlaces(places, problems.flatMap(({where: at = '', message, line}) => [...places.keys()].filter((one) => !line && at.startsWith(one)).map((one) => ({where: one, message}))))
      fill(faults, lined(source, problems))
      edited.open ||= faults.hasChildNodes()
      throw error
    }
  })
}

/** An instruction as a definition has it, once: in quotes, or on a line of YAML. @param {string} source @param {string} text */
const standing = (source, text) => [JSON.stringify(text), `: ${text}\n`].find((one) => source.split(one).length === 2)

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
