// A question, and the form of its answer; the element belongs to one question only.

import {get, Refused, send, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {choicesOf, same} from '../lib/fields.js'
import {Form} from '../lib/form.js'
import {instant, spent} from '../lib/format.js'
import {rowsOf} from '../lib/rows.js'
import {switcher, viewed} from '../lib/viewed.js'
import {failure, field, once} from './parts.js'

const ANSWER_WAIT_S = 10
const BUTTONS_MAX = 4
/** More choices are fields, as any other value. */
const TITLE_MAX = 200
/** The type of questions about calls of tools. */
const APPROVAL = 'tool_approval'
/** Events among which the latest result before a question is looked for. */
const LOOKED_BACK = 200
const RESULTS = ['model.result', 'tool.result', 'effect.result']
/** Where this browser keeps the name of the person who answers. */
const NAME = 'callboard.name'

/** @typedef {{answered: (question: Question) => void, refused: (question: Question, error: unknown) => boolean}} Given `refused` says whether somebody else tells the error */

export class Question {
  /** @param {any} one @param {HTMLElement} age @param {Given} given */
  constructor(one, age, given) {
    this.one = one
    this.given = given
    /** Whether the question was closed elsewhere, so that it can no longer be answered. */
    this.over = false
    const schema = one.schema ?? {}
    /** Whether it asks whether a tool may be called: a decision with arguments that can be edited. */
    this.approval = one.type === APPROVAL && one.data?.arguments !== undefined
    const choices = this.approval ? one.options : choicesOf(schema)
    const buttons = choices && choices.length <= BUTTONS_MAX ? choices : null
    /** @type {Form|null} */
    this.fields = buttons ? null : new Form(schema, 'Answer')
    /** @type {Form|null} */
    this.arguments = this.approval ? argumentsOf(one) : null
    this.said = h('div', {role: 'status'})
    this.comment = h('textarea', {rows: '2', class: 'prose', placeholder: 'recorded with the answer'})
    this.name = h('input', {type: 'text', autocomplete: 'name', value: localStorage.getItem(NAME) ?? '', oninput: () => localStorage.setItem(NAME, this.name.value.trim())})
    // Choices have no keys: each is answered only by its button.
    this.form = h('form', {class: 'fields', novalidate: true, tabindex: buttons ? -1 : null, onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault()
      this.read()
    }},
      this.fields?.element ?? this.arguments?.element ?? null,
      schema.description && buttons ? h('p', {class: 'soft'}, schema.description) : null,
      h('div', {class: 'beside'}, field(this.approval ? 'Reason' : 'Comment', this.comment, h('span', {class: 'told'}, this.approval ? 'Optional; the model reads it if the call is rejected' : 'Optional')), field('Your name', this.name, h('span', {class: 'told'}, 'Optional; remembered by this browser'))),
      this.said,
      h('div', {class: 'actions begin answers'}, buttons
        ? buttons.map((/** @type {any} */ choice) => h('button', {type: 'button', onclick: () => (this.approval ? this.decide(choice.value) : this.answer(choice.value))}, choice.label))
        : h('button', {class: 'primary'}, 'Answer', h('kbd', {'aria-hidden': 'true'}, '⌘⏎'))))
    this.sending = once(this.form)
    /** Whether the form has input that has not been sent. */
    this.written = false
    this.form.addEventListener('input', () => { this.written = true })
    const [title, rest] = titleOf(one.question)
    const context = contextOf(one)
    const who = (this.approval && one.data.to) || one.who
    this.elements = [
      h('header', {},
        h('h2', {class: 'asking text', dir: 'auto'}, title),
        h('p', {class: 'facts soft'}, h('a', {href: to(['runs', one.run], {n: one.n})}, one.run), h('span', {}, one.definition), h('code', {}, one.path), who ? h('span', {class: 'who'}, `for ${who}`) : null),
        h('p', {class: 'facts soft'}, one.until
          ? [h('span', {}, 'Open until ', h('time', {datetime: one.until}, instant(one.until))), age]
          : [h('span', {}, 'Asked ', h('time', {datetime: one.since}, instant(one.since))), h('span', {}, 'no time limit')],
        one.timeout_action ? h('span', {}, 'then: ', h('code', {}, one.timeout_action)) : null,
        this.approval ? costOf(one.run) : null)),
      rest ? h('div', {class: 'asked-more'}, viewed(rest, {as: 'markdown'})) : null,
      context === undefined ? null : h('section', {class: 'context', 'aria-label': 'Context'}, h('div', {class: 'facts'}, h('h3', {}, 'Context'), switcher()), viewed(context, {open: 2, run: one.run, as: 'markdown'})),
      this.approval ? null : earlier(one),
      this.form,
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

  /** Decide about a call of a tool, with the arguments as they stand there. @param {string} decision */
  decide(decision) {
    const reason = this.comment.value.trim()
    if (!this.arguments || !decision.startsWith('approve')) return this.answer(reason ? {decision, reason} : {decision})
    const {value, wrong} = this.arguments.read()
    if (wrong.length) return
    const edited = !same(value ?? {}, this.one.data.arguments ?? {})
    this.answer(edited ? {decision, arguments: value} : {decision})
  }

  /** @param {any} value */
  async answer(value) {
    if (this.over) return
    await this.sending.act(async () => {
      const {run, key} = this.one
      const comment = this.comment.value.trim()
      fill(this.said)
      try {
        await send(['runs', run, 'answer'], {
          interaction: key, user_response: value, by: this.name.value.trim() || 'page', channel: 'page', ...(comment ? {response_data: {comment}} : {}),
        }, {wait_s: ANSWER_WAIT_S})
        this.given.answered(this)
      } catch (error) {
        if (this.given.refused(this, error)) return
        if (error instanceof Refused && this.fields && error.status === 409) this.fields.tell([{where: '', message: error.message}])
        else fill(this.said, failure(error))
      }
    })
  }
}

/** What a run has cost so far, in money, for the person who decides whether it goes on; empty if that is not known. @param {string} run */
function costOf(run) {
  const place = h('span')
  get(['runs', run]).then(
    ({cost}) => fill(place, spent(cost) ? `So far: ${spent(cost)}` : null),
    (error) => fill(place, `So far: cost not known, ${error.message}`),
  )
  return place
}

/** What came before a question, such as the text that it is about: the latest result, read when somebody opens it. @param {any} one */
function earlier({run, n}) {
  const place = h('div', {class: 'earlier'})
  let asked = false
  const shown = h('details', {ontoggle: async () => {
    if (asked || !shown.open) return
    asked = true
    try {
      fill(place, (await latest(run, n)) ?? h('p', {class: 'soft'}, 'No result before this question.'))
    } catch (error) {
      asked = false
      fill(place, failure(error))
    }
  }}, h('summary', {}, 'Latest result before this question'), place)
  return shown
}

/** The latest result before an event, whose members are shown. @param {string} run @param {number} n */
async function latest(run, n) {
  const index = await get(['runs', run, 'index'], {after: Math.max(0, n - LOOKED_BACK), limit: LOOKED_BACK})
  const row = rowsOf(index).findLast((/** @type {import('../lib/rows.js').Row} */ each) => each.n < n && RESULTS.includes(each.type) && !each.key.endsWith('!route'))
  if (!row) return null
  const page = await get(['runs', run, 'events'], {after: row.sequence - 1, limit: 1})
  const {text, data, output, value} = page.events[0].event.payload
  return viewed(data ?? output ?? value ?? text ?? null, {open: 2, run, as: 'markdown'})
}

/** The form of the arguments of a call, as the model has given them. @param {any} one */
function argumentsOf({schema, data}) {
  const form = new Form({...schema?.properties?.arguments, description: undefined, default: undefined}, 'Arguments', {required: false})
  form.write(data.arguments)
  return form
}

/** What a question is about: its data without what is empty, and without what its text and its form show already. @param {any} one @returns {any} */
function contextOf({type, data, question, schema}) {
  if (type === APPROVAL && data) {
    const {kind: _kind, arguments: _arguments, conversation: _conversation, to: _to, ...more} = data
    return more
  }
  if (data === undefined || data === null || data === '') return undefined
  if (typeof data !== 'object' || Array.isArray(data)) return data
  const choices = choicesOf(schema)?.map((choice) => choice.value), members = Object.keys(schema?.properties ?? {})
  const shown = (/** @type {any} */ value) => value === '' || value === null || value === question || (typeof value === 'object' && !Object.keys(value).length)
    || (Array.isArray(value) && ((choices && same(value, choices)) || value.every((/** @type {any} */ each) => members.includes(each?.name ?? each))))
  const kept = Object.entries(data).filter(([, value]) => !shown(value))
  return kept.length ? Object.fromEntries(kept) : undefined
}

/** The first line of a question, and what follows it. @param {string} question @returns {[string, string]} */
export function titleOf(question) {
  const text = (question ?? '').trim()
  const line = text.split('\n', 1)[0]
  if (!text) return ['A question', '']
  return line.length > TITLE_MAX ? [`${line.slice(0, TITLE_MAX)}…`, text] : [line, text.slice(line.length).trim()]
}
