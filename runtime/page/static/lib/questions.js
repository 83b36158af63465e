// The open questions of all runs: how many there are, for whoever wants to know, and which, for whoever shows them.

import {get, quiet, Refused} from './api.js'
import {follow} from './follow.js'

const QUESTIONS_MAX = 1_000
const QUIET_MS = 1_000
const GATHER_MS = 30, AGAIN_MS = 250, RETRY_MS = 2_000

/** @typedef {{take: (questions: any[], count: number) => void, fail: (error: unknown) => void}} Watcher */

/** @type {Set<(count: number) => void>} */
const counters = new Set()
/** @type {Set<Watcher>} */
const watchers = new Set()
/** What was told last. @type {{questions: any[], count: number}} */
export const open = {questions: [], count: 0}
let asking = 0, asked = 0
/** How often it was asked, and which of these was the latest that has been answered. */
let asks = 0, told = 0
let following = false

function begin() {
  if (following) return
  following = true
  const changed = (/** @type {import('./follow.js').Told[]} */ told) => {
    if (told.some((one) => one.begun || one.sequence !== null && /^(human\.|run\.end|run\.quarantined)/.test(one.event.type))) gather()
  }
  follow('questions', changed)
  follow('runs', changed)
}

/** Be told how many are open. @param {(count: number) => void} counter */
export function count(counter) {
  counters.add(counter)
  begin()
  gather()
}

/** Tell a view which are open; returns what ends it. @param {Watcher} watcher */
export function watch(watcher) {
  watchers.add(watcher)
  begin()
  load()
  return () => watchers.delete(watcher)
}

/** Ask again, however much comes meanwhile, soon, and not too often. @param {number} [wait] */
export function gather(wait = GATHER_MS) {
  asking ||= setTimeout(load, Math.max(wait, asked + AGAIN_MS - Date.now()))
}

async function load() {
  // A number beside a word waits for what one has come to look at.
  if (!watchers.size) await quiet(QUIET_MS)
  clearTimeout(asking)
  asking = 0
  asked = Date.now()
  const turn = ++asks, shown = watchers.size > 0
  try {
    const {questions, count} = await get(['questions'], {limit: shown ? QUESTIONS_MAX : 1})
    if (turn < told) return
    told = turn
    open.count = count
    counters.forEach((counter) => counter(count))
    if (!shown) return
    open.questions = questions
    watchers.forEach((watcher) => watcher.take(questions, count))
  } catch (error) {
    watchers.forEach((watcher) => watcher.fail(error))
    if (error instanceof Refused && error.status !== 401) gather(RETRY_MS)
  }
}
