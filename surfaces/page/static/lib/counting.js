// The number of open questions: counted where the streams are, once for all tabs. Pure except for `fetch` and timers.

import {Asking} from './asking.js'

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
    this.streams = streams
    this.tell = tell
    /** How many there are, once that is known. @type {number|null} */
    this.count = null
    const ask = async () => {
      const response = await fetch(`${url}?limit=1`, {credentials: 'same-origin'})
      if (!response.ok) throw response
      return await response.json()
    }
    const take = (/** @type {{count: number}} */ {count}) => this.tell((this.count = count))
    // A new subscriber triggers a new request.
    this.asking = new Asking(ask, take, (error) => !(error instanceof Response && error.status === 401))
    const hear = (/** @type {Told[]} */ told) => told.some(changes) && this.again()
    const since = Date.now()
    this.followers = ['questions', 'runs'].map((topic) => /** @type {Follower} */ ({topic, after: null, since, tell: hear}))
    for (const one of this.followers) streams.follow(one)
    this.asking.now()
  }

  again() {
    this.asking.soon()
  }

  close() {
    this.asking.close()
    // The answer to a pending request has no subscriber any longer.
    this.tell = () => {}
    for (const one of this.followers) this.streams.leave(one)
  }
}
