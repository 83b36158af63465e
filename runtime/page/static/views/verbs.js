// Verbs: what one tells a run. What destroys asks first, and has no key.

import {path, readsOnly, send, to} from '../lib/api.js'
import {h} from '../lib/dom.js'
import {over} from '../lib/status.js'
import {go} from './going.js'
import {dialog, field} from './parts.js'

/** @param {string} run @param {string} status @param {import('../lib/run.js').Run} told */
export function verbs(run, status, told) {
  const like = h('a', {class: 'button', href: to(['start'], {like: run})}, 'Start like it')
  const compare = h('button', {onclick: () => beside(run)}, 'Compare…')
  if (readsOnly) return h('span', {class: 'verbs'}, exports(run), compare)
  if (over(status)) return h('span', {class: 'verbs'}, exports(run), compare, like)
  const tell = (/** @type {string} */ verb, /** @type {object} */ body = {}) => send(['runs', run, verb], {by: 'page', ...body})
  const now = (/** @type {string} */ word, /** @type {string} */ verb) => {
    const button = h('button', {onclick: async () => {
      button.disabled = true
      try {
        await tell(verb)
      } catch (error) {
        button.title = String(error)
        dialog(`${word}: it was refused`, [String(error instanceof Error ? error.message : error)], 'So be it', async () => {})
      } finally {
        button.disabled = false
      }
    }}, word)
    return button
  }
  const paused = [...told.open.values()].some((one) => one.kind === 'pause')
  return h(
    'span',
    {class: 'verbs'},
    paused ? now('Resume', 'resume') : now('Pause', 'pause'),
    h('button', {onclick: () => signal(tell)}, 'Signal…'),
    h('button', {onclick: () => ending(run, tell)}, 'Cancel…'),
    exports(run), compare, like,
  )
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
    await tell('signal', {name: name.value, ...(data.value.trim() ? {data: JSON.parse(data.value)} : {})})
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
