// The outcome of a run, before what has led to it: its output or its error, or the question for which it waits with the
// form of the answer; and the input, the model and the tags with which it was started.

import {get, readsOnly, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {left, some} from '../lib/format.js'
import {over} from '../lib/status.js'
import {copier, switcher, viewed} from '../lib/viewed.js'
import {failure, remedy} from './parts.js'
import {Question} from './question.js'

/** @typedef {import('../lib/run.js').Run} Run */
/** @typedef {{id: string, run: Run, loaded: boolean, failures: import('./run.js').Failures|null, event: (n: number) => Promise<any>}} Looked `event`: an event with its content, by its number */

const SAID_MAX = 600
const TREE_LEVELS = 1
/** How many levels of values are open: the rest is opened when somebody wants to see it. */

export class Outcome {
  /** @param {{failed: () => void}} given what shows where it has failed */
  constructor(given) {
    this.given = given
    this.main = h('div', {class: 'outcome-main'})
    this.started = h('div', {class: 'outcome-start'})
    this.element = h('section', {class: 'pane outcome', 'aria-label': 'Outcome', tabindex: '0', hidden: true, data: {pane: 'outcome'}}, this.main, this.started)
    /** What is shown: the end, or the question by its key. */
    this.shown = ''
    /** @type {Question|undefined} */
    this.question = undefined
    this.words = h('pre', {class: 'speaking-end', dir: 'auto'})
    this.speaks = h('section', {hidden: true}, h('h2', {}, 'Answer so far'), this.words)
    this.turn = 0
    /** @type {import('./run.js').Failures|null} */
    this.found = null
    this.completed = false
    this.failed = h('section', {class: 'wrong', hidden: true})
  }

  /** Ask for nothing more. */
  close() {
    this.turn++
  }

  /** Ask once more for what could not be had. @param {Looked} looked */
  again(looked) {
    if (!this.element.querySelector('.failure')) return
    this.shown = ''
    this.show(looked)
  }

  /** @param {Looked} looked */
  show(looked) {
    const {run, loaded, failures} = looked
    // What a run has come to is known once all of its events have been read.
    if (!loaded || !run.last) return
    const asked = readsOnly ? undefined : [...run.open.values()].find((one) => one.kind === 'human')
    const ended = run.ended || over(run.statusAt(run.last))
    if (ended) this.caught(failures)
    const shown = ended ? `ended ${run.root.n1}` : asked ? `asked ${asked.key} ${asked.n0}` : 'running'
    if (shown === this.shown) return
    this.shown = shown
    // An answer that is being sent has its verdict shown by the events that follow from it.
    this.question?.close(true)
    this.question = undefined
    this.fill(looked, asked?.key ?? '', ended)
  }

  /** Say how many steps failed and were caught, once that is known. @param {import('./run.js').Failures|null} found */
  caught(found) {
    this.found = found
    const {count = 0, path = ''} = found?.steps ?? {}
    this.failed.hidden = !this.completed || !count
    if (this.failed.hidden || this.failed.dataset.said === `${count} ${path}`) return
    this.failed.dataset.said = `${count} ${path}`
    fill(this.failed, h('h2', {}, `${some(count, 'step')} failed`), h('p', {}, h('code', {}, path), count > 1 ? ` and ${count - 1} more` : null), h('p', {}, h('button', {onclick: () => this.given.failed()}, 'Show where')))
  }

  /** Show the end of what a model says at the moment, while the run goes on. @param {string} said */
  speak(said) {
    this.speaks.hidden = !said
    this.words.textContent = said.length > SAID_MAX ? `… ${said.slice(-SAID_MAX)}` : said
  }

  /** @param {Looked} looked @param {string} key @param {boolean} ended */
  async fill(looked, key, ended) {
    const turn = ++this.turn
    const {run, id, event} = looked
    try {
      const [accepted, last, question] = await Promise.all([event(1), ended ? event(run.ended ? run.root.n1 : run.last) : null, key ? this.asked(id, key) : null])
      if (turn !== this.turn) return
      this.question = question ?? undefined
      fill(this.main, question ? question.elements : last ? this.ending(id, last) : [going(), this.speaks])
      fill(this.started, given(id, accepted))
    } catch (error) {
      if (turn !== this.turn) return
      fill(this.main, failure(error))
    }
    this.element.hidden = false
    this.element.classList.toggle('asks', Boolean(this.question))
  }

  /** The open question with a key; null if it has been closed meanwhile. @param {string} id @param {string} key */
  async asked(id, key) {
    const {questions} = await get(['questions'], {run_id: id})
    const one = questions.find((/** @type {any} */ each) => each.key === key)
    if (!one) return null
    const age = one.until ? h('span', {class: 'due'}, left(one.until)) : h('span')
    return new Question(one, age, {answered: (question) => question.close(true), refused: () => false})
  }

  /** @param {string} id @param {any} last the event that ended it */
  ending(id, {payload}) {
    const {error, output, results, status, code, message, successor} = payload ?? {}
    const wrong = error ?? (code ? {code, message} : null)
    const value = output ?? results
    if (successor) return [h('section', {}, h('h2', {}, 'Output'), h('p', {class: 'soft'}, 'The run continues as ', h('a', {href: to(['runs', successor.run])}, successor.run), '.'))]
    this.completed = status === 'completed'
    this.caught(this.found)
    return [
      this.failed,
      wrong ? h('section', {class: 'wrong'},
        h('h2', {}, 'Error'),
        h('p', {}, h('code', {class: 'code'}, wrong.code)),
        wrong.message ? viewed(wrong.message, {run: id}) : null,
        wrong.code ? remedy(wrong.code) : null,
        h('p', {}, h('button', {onclick: () => this.given.failed()}, 'Show where'))) : null,
      value !== null && value !== undefined ? h('section', {}, h('div', {class: 'facts'}, h('h2', {}, 'Output'), copier(value, id, 'the output'), switcher()), viewed(value, {open: TREE_LEVELS, run: id, as: 'markdown'}))
        : wrong ? null : h('section', {}, h('h2', {}, 'Output'), h('p', {class: 'soft'}, status === 'cancelled' ? 'The run was cancelled.' : 'The run has ended without an output.')),
    ]
  }
}

/** Of a run that goes on. */
const going = () => h('section', {}, h('h2', {}, 'Output'), h('p', {class: 'soft'}, 'The run has not ended yet. Its progress is shown below.'))

/** What a run was started with. @param {string} id @param {any} accepted its first event */
function given(id, {payload}) {
  const {start = {}, tags = {}} = payload ?? {}
  const input = start.input ?? start.arguments
  const named = Object.entries(tags)
  return [
    h('section', {}, h('h2', {}, 'Input'), input === undefined || input === null ? h('p', {class: 'soft'}, 'No input') : viewed(input, {open: TREE_LEVELS, run: id, as: 'markdown'})),
    start.model ? h('section', {}, h('h2', {}, 'Model'), h('code', {}, String(start.model))) : null,
    named.length ? h('section', {}, h('h2', {}, 'Tags'), h('p', {class: 'facts'}, named.map(([name, value]) => h('a', {href: to(['runs'], {q: `tag.${name}=${JSON.stringify(value)}`})}, `${name}: ${value}`)))) : null,
  ]
}
