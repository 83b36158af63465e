// How many questions are open: counted where the streams are, once for all tabs. Pure but for `fetch` and timers.

const GATHER_MS = 30, AGAIN_MS = 250, RETRY_MS = 2_000

/** @typedef {import('./stream.js').Follower} Follower */
/** @typedef {import('./stream.js').Told} Told */

/** Whether there may be more or fewer open questions than before. @param {Told} one */
export const changes = (one) => one.begun || (one.sequence !== null && /^(human\.|run\.end|run\.quarantined)/.test(one.event.type))

export class Counting {
  /**
   * @param {string} url of the open questions
   * @param {{follow: (follower: Follower) => void, leave: (follower: Follower) => void}} streams
   * @param {(count: number) => void} tell
   */
  constructor(url, streams, tell) {
    this.url = url
    this.streams = streams
    this.tell = tell
    /** How many there are, once that is known. @type {number|null} */
    this.count = null
    this.asking = 0
    this.asked = 0
    /** How often it was asked, and which of these was the latest that has been answered. */
    this.asks = 0
    this.answered = 0
    const hear = (/** @type {Told[]} */ told) => told.some(changes) && this.gather()
    const since = Date.now()
    this.followers = ['questions', 'runs'].map((topic) => /** @type {Follower} */ ({topic, after: null, since, tell: hear}))
    for (const one of this.followers) streams.follow(one)
    this.gather(0)
  }

  /** Ask again, however much comes meanwhile, soon, and not too often. @param {number} [wait] */
  gather(wait = GATHER_MS) {
    this.asking ||= setTimeout(() => this.ask(), Math.max(wait, this.asked + AGAIN_MS - Date.now()))
  }

  async ask() {
    this.asking = 0
    this.asked = Date.now()
    const turn = ++this.asks
    try {
      const response = await fetch(`${this.url}?limit=1`, {credentials: 'same-origin'})
      // Whoever comes in has it asked again.
      if (response.status === 401) return
      if (!response.ok) throw new Error(`the server answers ${response.status}`)
      const {count} = await response.json()
      if (turn < this.answered) return
      this.answered = turn
      this.count = count
      this.tell(count)
    } catch {
      this.gather(RETRY_MS)
    }
  }

  close() {
    clearTimeout(this.asking)
    // What is still asked is nobody's any more.
    this.tell = () => {}
    for (const one of this.followers) this.streams.leave(one)
  }
}
