// Following: the live updates of a view, over the stream that all tabs share.

import {path} from './api.js'
import {Counting} from './counting.js'
import {Stream} from './stream.js'

/** @typedef {import('./stream.js').Told} Told */
/** @typedef {import('./stream.js').State} State */

const ALIVE_MS = 20_000
const URL_OF = path('live')
const QUESTIONS = path('questions')

/** @type {Map<number, import('./stream.js').Follower>} */
const followers = new Map()
/** @type {Set<(state: State) => void>} */
const watchers = new Set()
/** Who is told how many questions are open. @type {((count: number) => void)|undefined} */
let counter
let last = 0
/** @type {State} */
let state = 'idle'

/** @param {State} now */
function become(now) {
  state = now
  watchers.forEach((watcher) => watcher(now))
}

/** @type {{follow: (id: number) => void, leave: (id: number) => void, again: () => void, count: () => void}|undefined} */
let way

/** Have the stream begin, once there is what it has news of: to ask for a shared worker holds a page up. */
export function begin() {
  way ??= typeof SharedWorker === 'function' ? shared() : alone()
  for (const id of followers.keys()) way.follow(id)
  if (counter) way.count()
}

function shared() {
  const own = new URL('../stream-worker.js', import.meta.url).href
  const trusted = /** @type {any} */ (globalThis).trustedTypes?.createPolicy('callboard', {createScriptURL: () => own})
  const address = trusted ? trusted.createScriptURL('') : own
  const worker = new SharedWorker(address, {type: 'module', name: 'callboard'})
  /** @param {object} asked */
  const ask = (asked) => worker.port.postMessage({url: URL_OF, ...asked})
  worker.port.onmessage = ({data}) => {
    if (data.state) return become(data.state)
    for (const [id, after] of data.heard ?? []) {
      const follower = followers.get(id)
      if (follower) follower.after = after
    }
    if (data.forgotten) followAll()
    if (data.count !== undefined) counter?.(data.count)
    if (data.told) hear(data.id, data.told)
  }
  setInterval(() => ask({alive: true}), ALIVE_MS)
  addEventListener('pagehide', () => ask({bye: true}))
  addEventListener('pageshow', (event) => event.persisted && followAll())
  const count = () => ask({count: QUESTIONS})
  const followAll = () => {
    followers.forEach((_, id) => follow(id))
    if (counter) count()
  }
  /** @param {number} id */
  const follow = (id) => {
    const {topic, after, since} = /** @type {any} */ (followers.get(id))
    ask({follow: {id, topic, after, since}})
  }
  return {follow, leave: (/** @type {number} */ id) => ask({leave: id}), again: () => ask({again: true}), count}
}

/** Tell a follower what it has not been told yet: whoever follows again may be told some of it once more. @param {number} id @param {Told[]} told */
function hear(id, told) {
  const follower = followers.get(id)
  if (!follower) return
  const {after} = follower
  const news = after === null ? told : told.filter((one) => one.sequence === null || one.sequence > after)
  follower.after = news.findLast((one) => one.sequence !== null)?.sequence ?? after
  if (news.length) follower.tell(news)
}

/** Where workers cannot be shared, each tab has a stream of its own, and one for all: a browser has few connections. */
function alone() {
  const stream = new Stream(URL_OF, become)
  const of = (/** @type {number} */ id) => /** @type {import('./stream.js').Follower} */ (followers.get(id))
  /** @type {Counting|undefined} */
  let counting
  const count = () => {
    counting ??= new Counting(QUESTIONS, stream, (open) => counter?.(open))
  }
  const again = () => {
    stream.renew(0)
    counting?.again()
  }
  return {follow: (/** @type {number} */ id) => stream.follow(of(id)), leave: (/** @type {number} */ id) => stream.leave(of(id)), again, count}
}

/**
 * Follow a topic from now on. Whoever has asked for what went before is told if something has come since. Returns what
 * ends it.
 * @param {string} topic
 * @param {(told: Told[]) => void} tell
 * @param {number} [since] when it was asked for what went before
 */
export function follow(topic, tell, since = asking()) {
  const id = ++last
  followers.set(id, {topic, after: null, since, tell})
  way?.follow(id)
  return () => {
    way?.leave(id)
    followers.delete(id)
  }
}

/** Be told how many questions are open, now and later. @param {(count: number) => void} told */
export function count(told) {
  counter = told
  way?.count()
}

/** The instant of what is asked now; until the stream begins, that may have been asked with the document. */
export const asking = () => (way ? Date.now() : performance.timeOrigin)

/** Hear how the stream stands, now and later. @param {(state: State) => void} watcher */
export function watch(watcher) {
  watchers.add(watcher)
  watcher(state)
  return () => watchers.delete(watcher)
}

/** Try again at once: somebody has come in. */
export const again = () => way?.again()
