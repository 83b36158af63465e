// Picking: send the same command to several runs of the list; each succeeds or fails on its own.

import {readsOnly, send} from '../lib/api.js'
import {fill, h, say} from '../lib/dom.js'
import {some} from '../lib/format.js'
import {ENDED_BADLY} from '../lib/status.js'
import {dialog, field} from './parts.js'

const TOLD_AT_ONCE = 8
const SHOWN_MAX = 10

export class Picking {
  /** @param {() => void} changed @param {(run: string) => string} statusOf the status of a run, empty if it is not listed */
  constructor(changed, statusOf) {
    this.changed = changed
    this.statusOf = statusOf
    /** @type {HTMLInputElement|undefined} */
    this.whole = undefined
    /** @type {Set<string>} */
    this.runs = new Set()
    this.last = ''
    this.element = h('span', {class: 'verbs', hidden: true, role: 'group', 'aria-label': 'Selected runs'})
    this.said = h('span', {role: 'status'})
  }

  /** @param {string} run */
  turn(run) {
    if (readsOnly) return
    if (!this.runs.delete(run)) this.runs.add(run)
    this.last = run
    this.draw()
  }

  /** Pick all from the one that was turned last, or only this one. @param {string} run @param {string[]} listed */
  reach(run, listed) {
    const [from, to] = [listed.indexOf(this.last), listed.indexOf(run)].sort((a, b) => a - b)
    if (from < 0) return this.turn(run)
    for (const one of listed.slice(from, to + 1)) this.runs.add(one)
    this.last = run
    this.draw()
  }

  /**
   * The checkbox of a run, visible under the mouse and while any run is picked.
   * @param {string} run @param {() => string[]} listed
   */
  box(run, listed) {
    if (readsOnly) return null
    const stay = (/** @type {Event} */ event) => event.stopPropagation()
    const box = h('input', {type: 'checkbox', tabindex: '-1', 'aria-label': `Select ${run}`, onclick: (/** @type {MouseEvent} */ event) => {
      if (event.shiftKey) this.reach(run, listed())
      else this.turn(run)
    }})
    box.checked = this.runs.has(run)
    return h('label', {class: 'pick', onclick: stay, ondblclick: stay}, box)
  }

  /** The checkbox of all listed runs. @param {() => string[]} listed */
  all(listed) {
    if (readsOnly) return null
    const box = h('input', {type: 'checkbox', 'aria-label': 'Select all listed runs', onclick: () => {
      this.runs = new Set(box.checked ? listed() : [])
      this.draw()
    }})
    this.whole = box
    return h('label', {class: 'pick', title: 'Select all listed runs'}, box)
  }

  /** Show whether all listed runs are selected. @param {number} listed */
  mark(listed) {
    if (!this.whole) return
    this.whole.checked = listed > 0 && this.runs.size >= listed
    this.whole.indeterminate = this.runs.size > 0 && this.runs.size < listed
    this.whole.disabled = !listed
  }

  draw() {
    this.element.hidden = !this.runs.size
    fill(this.said, `${some(this.runs.size, 'run')} selected`)
    fill(this.element, this.said,
      h('button', {onclick: () => this.cancel()}, 'Cancel…'),
      h('button', {onclick: () => this.retry()}, 'Retry…'),
      h('button', {class: 'quiet', onclick: () => this.none()}, 'Clear selection'))
    this.changed()
  }

  none() {
    this.runs.clear()
    this.draw()
  }

  cancel() {
    const reason = h('input', {type: 'text', placeholder: 'why, recorded in the log'})
    dialog(`Cancel ${some(this.runs.size, 'run')}?`, [names([...this.runs]), field('Reason', reason)], 'Cancel them',
      () => this.tell('cancel', {by: 'page', reason: reason.value}, [...this.runs]), {dangerous: true, leave: 'Keep them running'})
  }

  retry() {
    const waiting = [...this.runs].filter((run) => ENDED_BADLY.includes(this.statusOf(run) || ENDED_BADLY[0]))
    const left = this.runs.size - waiting.length
    if (!waiting.length) {
      dialog('Nothing to retry', [h('p', {}, 'None of the selected runs has failed, expired or been cancelled.')], 'Close', async () => {})
      return
    }
    dialog(`Retry ${some(waiting.length, 'run')}?`, [names(waiting), left ? h('p', {}, `${some(left, 'selected run has', 'selected runs have')} not failed, and ${left === 1 ? 'is' : 'are'} left as ${left === 1 ? 'it is' : 'they are'}.`) : null,
      h('p', {}, 'Each is continued as a new run from before the event that ended it, and so are its child runs: completed work is not repeated.')], 'Retry them',
    () => this.tell('fork', {failure: true}, waiting))
  }

  /** Send a command to runs; those that refuse it stay picked. @param {string} verb @param {object} body @param {string[]} waiting */
  async tell(verb, body, waiting) {
    /** @type {string[]} */
    const refused = []
    const count = waiting.length
    await Promise.all(Array.from({length: TOLD_AT_ONCE}, async () => {
      for (let run = waiting.shift(); run !== undefined; run = waiting.shift()) {
        try {
          await send(['runs', run, verb], body)
          this.runs.delete(run)
        } catch (error) {
          refused.push(`${run}: ${error instanceof Error ? error.message : error}`)
        }
      }
    }))
    this.draw()
    say(`sent to ${count - refused.length} of ${some(count, 'run')}`)
    if (refused.length) throw new Error(`${refused.length} of ${count} runs refused the command. ${refused.slice(0, SHOWN_MAX).join('. ')}`)
  }
}

/** @param {string[]} runs */
function names(runs) {
  const more = runs.length - SHOWN_MAX
  return h('ul', {}, runs.slice(0, SHOWN_MAX).map((run) => h('li', {}, run)), more > 0 ? h('li', {class: 'soft'}, `and ${more} more`) : null)
}
