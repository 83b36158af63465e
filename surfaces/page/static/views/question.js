// A question, and the form of its answer; the element belongs to one question only.

import {Refused, send, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {choicesOf} from '../lib/fields.js'
import {Form} from '../lib/form.js'
import {tree} from '../lib/value.js'
import {failure, once} from './parts.js'

const ANSWER_WAIT_S = 10
const BUTTONS_MAX = 4
/** More choices are fields, as any other value. */

/** @typedef {{answered: (question: Question) => void, refused: (question: Question, error: unknown) => boolean}} Given `refused` says whether somebody else tells the error */

export class Question {
  /** @param {any} one @param {HTMLElement} age @param {Given} given */
  constructor(one, age, given) {
    this.one = one
    this.given = given
    /** Whether the question was closed elsewhere, so that it can no longer be answered. */
    this.over = false
    const schema = one.schema ?? {}
    const choices = choicesOf(schema)
    const buttons = choices && choices.length <= BUTTONS_MAX ? choices : null
    this.fields = buttons ? null : new Form(schema, 'Answer')
    this.said = h('div', {role: 'status'})
    // Choices have no keys: each is answered only by its button.
    this.form = h('form', {class: 'fields', novalidate: true, tabindex: buttons ? -1 : null, onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault()
      this.read()
    }},
      this.fields?.element ?? null,
      schema.description && buttons ? h('p', {class: 'soft'}, schema.description) : null,
      this.said,
      h('div', {class: 'actions begin'}, buttons
        ? buttons.map((choice) => h('button', {type: 'button', onclick: () => this.answer(choice.value)}, choice.label))
        : h('button', {class: 'primary'}, 'Answer', h('kbd', {'aria-hidden': 'true'}, '⌘⏎'))))
    this.sending = once(this.form)
    /** Whether the form has input that has not been sent. */
    this.written = false
    this.form.addEventListener('input', () => { this.written = true })
    this.elements = [
      h('header', {},
        h('p', {class: 'facts soft'}, h('a', {href: to(['runs', one.run], {n: one.n})}, one.run), h('span', {}, one.definition), h('code', {}, one.path), one.who ? h('span', {}, `for ${one.who}`) : null, age),
        h('h2', {class: 'asking text'}, one.question || 'A question')),
      one.data === undefined || one.data === null ? null : h('details', {open: true}, h('summary', {class: 'soft'}, 'Data'), tree(one.data, {open: 2, run: one.run})),
      this.form,
      one.timeout_action ? h('p', {class: 'soft'}, 'Without an answer in time: ', h('code', {}, one.timeout_action)) : null,
    ]
  }

  /** Show whether it is closed; while an answer is being sent, its result decides. @param {boolean} over */
  close(over) {
    if (this.over === over || this.sending.busy) return
    this.over = over
    for (const element of this.form.elements) /** @type {HTMLInputElement} */ (element).disabled = over
    fill(this.said, over ? h('p', {class: 'closed'}, h('strong', {}, 'Closed: '), 'the question has been answered elsewhere or withdrawn.') : null)
  }

  focus() {
    const first = this.fields ? this.form.querySelector('input, textarea, select, button') : this.form
    if (first instanceof HTMLElement) first.focus()
  }

  read() {
    if (this.over || this.sending.busy || !this.fields) return
    const {value, wrong} = this.fields.read()
    if (!wrong.length) this.answer(value)
  }

  /** @param {any} value */
  async answer(value) {
    if (this.over) return
    await this.sending.act(async () => {
      const {run, key} = this.one
      fill(this.said)
      try {
        await send(['runs', run, 'answer'], {interaction: key, user_response: value, by: 'page', channel: 'page'}, {wait_s: ANSWER_WAIT_S})
        this.given.answered(this)
      } catch (error) {
        if (this.given.refused(this, error)) return
        if (error instanceof Refused && this.fields && error.status === 409) this.fields.tell([{where: '', message: error.message}])
        else fill(this.said, failure(error))
      }
    })
  }
}
