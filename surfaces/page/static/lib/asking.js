// Asking again: soon after the data may have changed, but not too often. Pure except for timers.

const GATHER_MS = 30, AGAIN_MS = 250, RETRY_MS = 2_000

export class Asking {
  /**
   * @param {() => Promise<any>} ask
   * @param {(answer: any) => void} take an answer; none that was asked for before one that has been taken
   * @param {(error: unknown) => boolean} fail says whether it is asked again after a while
   */
  constructor(ask, take, fail) {
    this.ask = ask
    this.take = take
    this.fail = fail
    this.waiting = 0
    this.asked = 0
    /** How often it was asked, and which of these was the latest that has been answered. */
    this.asks = 0
    this.answered = 0
  }

  /** Ask again, however much comes meanwhile. @param {number} [wait] */
  soon(wait = GATHER_MS) {
    this.waiting ||= setTimeout(() => this.now(), Math.max(wait, this.asked + AGAIN_MS - Date.now()))
  }

  async now() {
    this.close()
    this.asked = Date.now()
    const turn = ++this.asks
    try {
      const answer = await this.ask()
      if (turn < this.answered) return
      this.answered = turn
      this.take(answer)
    } catch (error) {
      if (this.fail(error)) this.soon(RETRY_MS)
    }
  }

  close() {
    clearTimeout(this.waiting)
    this.waiting = 0
  }
}
