// The open questions of all runs, for whoever shows them.

import {get, Refused} from './api.js'
import {changes} from './counting.js'
import {follow} from './follow.js'

const QUESTIONS_MAX = 1_000
const GATHER_MS = 30, AGAIN_MS = 250, RETRY_MS = 2_000

/** @typedef {{take: (questions: any[], count: number) => void, fail: (error: unknown) => void}} Watcher */

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
  const hear = (/** @type {import('./follow.js').Told[]} */ told) => told.some(changes) && gather()
  follow('questions', hear)
  follow('runs', hear)
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
  if (watchers.size) asking ||= setTimeout(load, Math.max(wait, asked + AGAIN_MS - Date.now()))
}

async function load() {
  clearTimeout(asking)
  asking = 0
  asked = Date.now()
  const turn = ++asks
  try {
    const {questions, count} = await get(['questions'], {limit: QUESTIONS_MAX})
    if (turn < told) return
    told = turn
    open.count = count
    open.questions = questions
    watchers.forEach((watcher) => watcher.take(questions, count))
  } catch (error) {
    watchers.forEach((watcher) => watcher.fail(error))
    if (error instanceof Refused && error.status !== 401) gather(RETRY_MS)
  }
}
