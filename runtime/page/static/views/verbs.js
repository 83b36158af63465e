// Verbs: what one tells a run. What destroys asks first, and has no key.

import {send} from '../lib/api.js'
import {h} from '../lib/dom.js'
import {over} from '../lib/status.js'
import {dialog, field} from './parts.js'

/** @param {string} run @param {string} status @param {import('../lib/run.js').Run} told */
export function verbs(run, status, told) {
  if (over(status)) return h('span', {class: 'verbs'})
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
  )
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
