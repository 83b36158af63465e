// The stream: one connection that delivers the events of all followed topics. Pure except for `fetch` and timers.
//
// Every follower begins after a stream sequence, or now; events arrive in the order of the log, so one number is the
// position of a follower. When topics are added, the connection is reopened after the earliest of these numbers, and each
// follower skips the events it has already seen: no gap, no duplicate. A follower that begins now starts at the position
// of the connection, so that the others do not wait for old events.

/**
 * A follower that begins now (`after` is null) has requested the earlier data at the instant `since`.
 * @typedef {{topic: string, after: number|null, since: number, tell: (told: Told[]) => void}} Follower
 */
/** @typedef {{sequence: number|null, event?: any, delta?: any, begun?: boolean}} Told an event; without a sequence, a piece of an answer, or the notice that the topic is followed from now on: data requested before may be older */
/** @typedef {'idle'|'live'|'away'|'unauthorized'} State */

const SILENCE_MS = 40_000
const RETRY_MS = 250, RETRY_MAX_MS = 5_000
const GATHER_MS = 20
const SLOW_MS = 16

export class Stream {
  /**
   * @param {string} url of the live events
   * @param {(state: State) => void} changed
   */
  constructor(url, changed) {
    this.url = url
    this.changed = changed
    /** @type {Set<Follower>} */
    this.followers = new Set()
    /** @type {Map<Follower, Told[]>} */
    this.ready = new Map()
    /** @type {AbortController|null} */
    this.connection = null
    /** @type {State} */
    this.state = 'idle'
    this.topics = ''
    /** The sequence that the connection has come to; null, until the server has said where it begins. @type {number|null} */
    this.at = null
    /** When it came there. */
    this.came = 0
    this.tried = 0
    this.timer = 0
    this.flushing = 0
  }

  /** @param {Follower} follower */
  follow(follower) {
    this.followers.add(follower)
    this.renew(GATHER_MS)
  }

  /** @param {Follower} follower */
  leave(follower) {
    this.ready.delete(follower)
    if (this.followers.delete(follower)) this.renew(GATHER_MS)
  }

  /** What is followed, each once. */
  topicsOf() {
    return [...new Set([...this.followers].map((one) => one.topic))].sort()
  }

  /** Connect, or connect otherwise, after a while. @param {number} wait */
  renew(wait) {
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.connect(), wait)
  }

  async connect() {
    const followers = [...this.followers]
    const topics = this.topicsOf()
    // A follower that begins before the connection's position would miss the events in between.
    const {at} = this
    if (topics.length && topics.join() === this.topics && followers.every(({after}) => after === null || (at !== null && after >= at))) return this.begin()
    this.connection?.abort()
    this.connection = null
    this.topics = topics.join()
    this.at = null
    if (!topics.length) return this.become('idle')
    const connection = (this.connection = new AbortController())
    const known = followers.map((one) => one.after).filter((after) => after !== null)
    const after = known.length ? Math.min(.../** @type {number[]} */ (known)) : null
    try {
      const asked = new URLSearchParams(topics.map((topic) => ['topic', topic]))
      if (after !== null) asked.set('after', String(after))
      const response = await fetch(`${this.url}?${asked}`, {signal: connection.signal, credentials: 'same-origin'})
      if (response.status === 401) {
        this.topics = ''
        return this.become('unauthorized')
      }
      if (!response.ok || !response.body) throw new Error(`the server answers ${response.status}`)
      this.tried = 0
      await this.read(response.body.pipeThrough(new TextDecoderStream()).getReader(), connection)
      throw new Error('the stream has ended')
    } catch {
      if (connection !== this.connection) return
      this.become('away')
      this.topics = ''
      const wait = Math.min(RETRY_MS * 2 ** this.tried++, RETRY_MAX_MS)
      this.renew(wait * (0.5 + Math.random() / 2))
    }
  }

  /** @param {ReadableStreamDefaultReader<string>} reader @param {AbortController} connection */
  async read(reader, connection) {
    let rest = ''
    for (;;) {
      const silence = setTimeout(() => connection.abort(), SILENCE_MS)
      const {value, done} = await reader.read().finally(() => clearTimeout(silence))
      if (connection !== this.connection || done) return
      this.become('live')
      const frames = (rest + value).split('\n\n')
      rest = frames.pop() ?? ''
      for (const frame of frames) this.take(frame)
    }
  }

  /** @param {string} frame */
  take(frame) {
    let id = null, data = '', kind = ''
    for (const line of frame.split('\n')) {
      if (line.startsWith('data: ')) data = line.slice(6)
      else if (line.startsWith('id: ')) id = Number(line.slice(4))
      else if (line.startsWith('event: ')) kind = line.slice(7)
    }
    if (id !== null) {
      this.at = id
      this.came = Date.now()
    }
    // The first position has no event: the connection begins after it.
    if (!data) return this.begin()
    const event = read(data)
    for (const follower of this.followers) {
      if (id === null) {
        if (event && follower.topic === `run:${event.run}`) this.put(follower, {sequence: null, delta: event})
      } else if (follower.after !== null && follower.after < id) {
        // A follower that has not begun yet misses more than this event.
        follower.after = id
        if (event && covers(follower.topic, kind, event.run)) this.put(follower, {sequence: id, event})
      }
    }
  }

  /** Whoever begins now does so where the connection is; what has come since they asked for what went before, they lack. */
  begin() {
    const {at} = this
    if (at === null) return
    for (const follower of this.followers) {
      if (follower.after !== null) continue
      follower.after = at
      if (this.came >= follower.since) this.put(follower, {sequence: null, begun: true})
    }
  }

  /** @param {Follower} follower @param {Told} told */
  put(follower, told) {
    const ready = this.ready.get(follower)
    if (ready) ready.push(told)
    else this.ready.set(follower, [told])
    // Events of a burst are delivered together, so that they cost one redraw.
    this.flushing ||= setTimeout(() => this.flush(), SLOW_MS)
  }

  flush() {
    this.flushing = 0
    const ready = this.ready
    this.ready = new Map()
    for (const [follower, told] of ready) follower.tell(told)
  }

  /** @param {State} state */
  become(state) {
    if (state === this.state) return
    this.state = state
    this.changed(state)
  }
}

/** What cannot be read is passed over: it would be no other if it came again. @param {string} data */
function read(data) {
  try {
    return JSON.parse(data)
  } catch {
    return null
  }
}

/** Whether a topic has an event. @param {string} topic @param {string} type @param {string} run */
export function covers(topic, type, run) {
  if (topic === 'runs') return type.startsWith('run.')
  if (topic === 'questions') return type.startsWith('human.')
  return topic === `run:${run}`
}
