// The streams: enough connections for all followed topics, while leaving connections free for requests.
//
// Topics of all runs have their own connection, which opening or closing a run does not interrupt; single runs share the
// others. A run for which no connection has room is not streamed: its followers are told from time to time to ask.

import {Stream} from './stream.js'

/** @typedef {import('./stream.js').Follower} Follower */
/** @typedef {import('./stream.js').State} State */

/** Topics of one connection; the server takes no more. */
export const TOPICS_MAX = 32
const CONNECTIONS_MAX = 3
/** A browser has no more than six to a server: what is asked needs some of them. */
const ASK_MS = 5_000
/** The state of all is that of the first of these that one is in. @type {State[]} */
const STATES = ['unauthorized', 'away', 'live', 'idle']

/** Whether a topic is a single run. @param {string} topic */
const single = (topic) => topic.startsWith('run:')

export class Streams {
  /**
   * @param {string} url of the live events
   * @param {(state: State) => void} changed
   */
  constructor(url, changed) {
    this.url = url
    this.changed = changed
    this.ofAll = this.stream()
    /** @type {Stream[]} */
    this.ofRuns = []
    /** @type {Set<Follower>} who finds no room */
    this.outside = new Set()
    this.asking = 0
    /** @type {State} */
    this.state = 'idle'
  }

  get all() {
    return [this.ofAll, ...this.ofRuns]
  }

  /** @returns {Stream} */
  stream() {
    return new Stream(this.url, () => this.become())
  }

  /** @param {Follower} follower */
  follow(follower) {
    const stream = single(follower.topic) ? this.room(follower.topic) : this.ofAll
    if (stream) return stream.follow(follower)
    this.outside.add(follower)
    this.ask()
  }

  /** The connection that has a run, or has room for it. @param {string} topic @returns {Stream|undefined} */
  room(topic) {
    const found = this.ofRuns.find((one) => one.topicsOf().includes(topic)) ?? this.ofRuns.find((one) => one.topicsOf().length < TOPICS_MAX)
    if (found || this.all.length === CONNECTIONS_MAX) return found
    const made = this.stream()
    this.ofRuns.push(made)
    return made
  }

  /** @param {Follower} follower */
  leave(follower) {
    for (const stream of this.all) stream.leave(follower)
    const outside = [...this.outside]
    this.outside.clear()
    for (const one of outside) if (one !== follower) this.follow(one)
  }

  /** Have those who are told of nothing ask by themselves. */
  ask() {
    this.asking ||= setTimeout(() => {
      this.asking = 0
      for (const follower of this.outside) follower.tell([{sequence: null, begun: true}])
      if (this.outside.size) this.ask()
    }, ASK_MS)
  }

  /** Connect at once what is away. */
  again() {
    for (const stream of this.all) stream.renew(0)
  }

  flush() {
    for (const stream of this.all) stream.flush()
  }

  become() {
    const states = this.all.map((one) => one.state)
    const state = STATES.find((one) => states.includes(one)) ?? 'idle'
    if (state === this.state) return
    this.state = state
    this.changed(state)
  }
}
