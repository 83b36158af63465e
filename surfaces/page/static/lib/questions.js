// The open questions of all runs.

import {get, Refused} from './api.js'
import {Asking} from './asking.js'
import {changes} from './counting.js'
import {follow} from './follow.js'

const QUESTIONS_MAX = 1_000

/** @typedef {{take: (questions: any[], count: number) => void, fail: (error: unknown) => void}} Watcher */

/** @type {Set<Watcher>} */
const watchers = new Set()
/** What was told last. @type {{questions: any[], count: number}} */
export const open = {questions: [], count: 0}
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
  asking.now()
  return () => watchers.delete(watcher)
}

/** Ask again, if somebody shows them. */
export function gather() {
  if (watchers.size) asking.soon()
}

const asking = new Asking(() => get(['questions'], {limit: QUESTIONS_MAX}), take, fail)

/** @param {{questions: any[], count: number}} answer */
function take({questions, count}) {
  open.count = count
  open.questions = questions
  watchers.forEach((watcher) => watcher.take(questions, count))
}

/** @param {unknown} error */
function fail(error) {
  watchers.forEach((watcher) => watcher.fail(error))
  return watchers.size > 0 && error instanceof Refused && error.status !== 401
}
