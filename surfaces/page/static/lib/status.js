// Statuses: shape, word and colour of each status of runs, nodes and effects. Pure except for the chip.

import {h} from './dom.js'

/** @typedef {'running'|'ok'|'failed'|'waiting'|'paused'|'cancelled'|'plain'} Look */

/** @type {Record<string, [Look, string, string]>} */
const OF = {
  accepted: ['plain', '○', 'accepted'],
  running: ['running', '◐', 'running'],
  paused: ['paused', '‖', 'paused'],
  cancelling: ['cancelled', '⊘', 'cancelling'],
  diverged: ['failed', '✕', 'diverged'],
  quarantined: ['failed', '✕', 'quarantined'],
  completed: ['ok', '✓', 'completed'],
  failed: ['failed', '✕', 'failed'],
  cancelled: ['cancelled', '⊘', 'cancelled'],
  expired: ['failed', '✕', 'expired'],
  ok: ['ok', '✓', 'ok'],
  success: ['ok', '✓', 'ok'],
  answered: ['ok', '✓', 'answered'],
  current: ['running', '◐', 'running'],
  skipped: ['plain', '–', 'skipped'],
  timeout: ['failed', '✕', 'timed out'],
  ended: ['plain', '○', 'run ended'],
  waiting: ['waiting', '◷', 'waiting'],
  'waiting:human': ['waiting', '◷', 'waits for a person'],
  'waiting:tool': ['waiting', '◷', 'waits for a tool'],
  'waiting:timer': ['waiting', '◷', 'waits for a time'],
  'waiting:signal': ['waiting', '◷', 'waits for a signal'],
  'waiting:child': ['waiting', '◷', 'waits for a run'],
  'waiting:code': ['waiting', '◷', 'waits for its code'],
}

/** Statuses that a list may be narrowed to. */
export const LISTED = ['running', 'waiting', 'paused', 'completed', 'failed', 'cancelled']

/** @param {string} status @returns {[Look, string, string]} */
export const look = (status) => OF[status] ?? ['plain', '·', status]

/** Whether a run does nothing more of its own accord. @param {string} status */
export const over = (status) => ['completed', 'failed', 'cancelled', 'expired', 'quarantined'].includes(status)

/**
 * A status as everybody sees it; `small` leaves the word to those who hear the page.
 * @param {string} status
 * @param {{small?: boolean}} [how]
 */
export function chip(status, {small = false} = {}) {
  const [kind, glyph, word] = look(status)
  return h(
    'span',
    {class: `status ${kind}`, title: small ? word : null},
    h('span', {class: 'glyph', 'aria-hidden': 'true'}, glyph),
    small ? h('span', {class: 'heard'}, word) : h('span', {class: 'word'}, word),
  )
}

/** Statuses of ended runs that can be retried. */
export const ENDED_BADLY = ['failed', 'expired', 'cancelled']
