// The inbox: every question of every run that is open, and its answer.

import {get, Refused, send, to} from '../lib/api.js'
import {fill, h, say} from '../lib/dom.js'
import {follow} from '../lib/follow.js'
import {choicesOf, either} from '../lib/form.js'
import {duration, instant, left, short} from '../lib/format.js'
import {List} from '../lib/list.js'
import {tree} from '../lib/value.js'
import {note} from './going.js'
import {failure, nothing} from './parts.js'

const ROW_PX = 58
const TICK_MS = 1_000
const QUESTIONS_MAX = 1_000
const GATHER_MS = 30, AGAIN_MS = 250, RETRY_MS = 2_000
const ANSWER_WAIT_S = 10

/** How many questions are open, for whoever wants to know. */
/** @type {Set<(questions: any[]) => void>} */
const watchers = new Set()
/** @type {any[]} */
let known = []
let asking = 0, asked = 0
let following = false

/** @param {(questions: any[]) => void} watcher */
export function watch(watcher) {
  watchers.add(watcher)
  if (!following) {
    following = true
    const changed = (/** @type {import('../lib/follow.js').Told[]} */ told) => {
      if (told.some((one) => one.begun || one.sequence !== null && /^(human\.|run\.end|run\.quarantined)/.test(one.event.type))) gather()
    }
    follow('questions', null, changed)
    follow('runs', null, changed)
    load()
  }
  watcher(known)
  return () => watchers.delete(watcher)
}

/** Ask again, however much comes meanwhile, soon, and not too often. @param {number} [wait] */
function gather(wait = GATHER_MS) {
  asking ||= setTimeout(load, Math.max(wait, asked + AGAIN_MS - Date.now()))
}

async function load() {
  asking = 0
  asked = Date.now()
  try {
    const {questions} = await get(['questions'], {limit: QUESTIONS_MAX})
    known = questions
    watchers.forEach((watcher) => watcher(known))
  } catch (error) {
    if (error instanceof Refused && error.status !== 401) gather(RETRY_MS)
  }
}

/** @param {any} one */
const nameOf = (one) => `${one.run} ${one.key}`

export class InboxView extends HTMLElement {
  /** @param {import('../lib/urls.js').Place} place */
  show(place) {
    this.asked = [place.query.get('run'), place.query.get('key')].filter(Boolean).join(' ')
    this.draw()
  }

  connectedCallback() {
    /** @type {any[]} */
    this.questions = []
    this.list = new List({
      label: 'Open questions', height: ROW_PX, row: (index) => this.row(index),
      chosen: (index) => this.choose(this.questions[index]), opened: () => this.focusField(),
    })
    this.count = h('span', {class: 'soft', role: 'status'})
    this.panel = h('section', {class: 'question', 'aria-label': 'The question'})
    fill(this, h('div', {class: 'bar'}, h('h1', {}, 'Inbox'), this.count), h('div', {class: 'inbox'}, h('div', {class: 'sheet'}, this.list.element), this.panel))
    this.unwatch = watch((questions) => this.take(questions))
    this.ticking = setInterval(() => this.tick(), TICK_MS)
    this.addEventListener('keydown', (event) => {
      if ((event.metaKey || event.ctrlKey) && event.key === 'Enter') {
        event.preventDefault()
        this.querySelector('form')?.requestSubmit()
      }
    })
  }

  disconnectedCallback() {
    this.unwatch?.()
    this.list.close()
    clearInterval(this.ticking)
  }

  /** @param {any[]} questions */
  take(questions) {
    if (questions.length > this.questions.length && this.questions.length) say(`${questions.length} open questions`)
    this.questions = questions
    this.draw()
  }

  draw() {
    if (!this.list) return
    const {questions} = this
    this.count.textContent = questions.length ? `${questions.length} open` : ''
    this.classList.toggle('bare', !questions.length)
    if (!questions.length) {
      this.shown = ''
      this.list.set(0)
      return fill(this.panel, this.thanks ?? null, nothing('Nobody is waited for', 'Questions of all runs come in here, the oldest first, as soon as they are asked.'))
    }
    const index = Math.max(0, questions.findIndex((one) => nameOf(one) === this.asked))
    this.list.set(questions.length)
    this.list.mark(index)
    this.open(questions[index])
  }

  /** @param {any} one */
  choose(one) {
    this.asked = nameOf(one)
    note({run: one.run, key: one.key})
    this.thanks = null
    this.open(one)
  }

  focusField() {
    const first = this.panel.querySelector('form input, form textarea, form select, form button')
    if (first instanceof HTMLElement) first.focus()
  }

  /** @param {number} index */
  row(index) {
    const one = this.questions[index]
    return h('div', {class: 'inbox-row', role: 'row'}, h('span', {role: 'gridcell'},
      h('span', {class: 'asked'}, short(one.question || one.key, 200)),
      h('span', {class: 'facts soft'}, h('span', {}, one.run), h('span', {}, one.definition), this.age(one))))
  }

  /** @param {any} one */
  age(one) {
    return one.until
      ? h('span', {class: 'due', data: {until: one.until}, title: instant(one.until)}, left(one.until))
      : h('span', {title: instant(one.since)}, duration((Date.now() - Date.parse(one.since)) / 1000))
  }

  tick() {
    for (const place of this.querySelectorAll('[data-until]')) {
      const until = /** @type {HTMLElement} */ (place).dataset.until ?? ''
      place.textContent = left(until)
      place.classList.toggle('soon', Date.parse(until) - Date.now() < 60_000)
    }
  }

  /** @param {any} one */
  open(one) {
    // What somebody has begun to write stays while others come and go.
    if (this.shown === nameOf(one)) return
    this.shown = nameOf(one)
    const schema = one.schema ?? {}
    const choices = choicesOf(schema)
    const said = h('div')
    const buttons = choices && choices.length <= 4 ? choices : null
    const fields = buttons ? null : either(schema, schema.title ?? 'Answer')
    const answer = async (/** @type {any} */ value) => {
      fill(said)
      try {
        await send(['runs', one.run, 'answer'], {interaction: one.key, user_response: value, by: 'page', channel: 'page'}, {wait_s: ANSWER_WAIT_S})
        this.thanks = h('p', {class: 'status ok', role: 'status'}, h('span', {class: 'glyph', 'aria-hidden': 'true'}, '✓'), `answered ${one.run}`)
        this.shown = ''
        this.asked = ''
        note({run: null, key: null})
        this.take(this.questions.filter((other) => other !== one))
        gather()
        this.list.element.focus()
      } catch (error) {
        if (error instanceof Refused && fields && error.status === 409) fields.tell([{where: '', message: error.message}])
        else fill(said, failure(error))
      }
    }
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault()
      if (!fields) return answer(buttons?.[0].value)
      const {value, wrong} = fields.read()
      if (!wrong.length) await answer(value)
    }
    fill(
      this.panel,
      this.thanks ?? null,
      h('header', {},
        h('p', {class: 'facts soft'}, h('a', {href: to(['runs', one.run], {n: one.n})}, one.run), h('span', {}, one.definition), h('code', {}, one.path), one.who ? h('span', {}, `for ${one.who}`) : null, this.age(one)),
        h('h2', {class: 'asking text'}, one.question || 'A question')),
      one.data === undefined || one.data === null ? null : h('details', {open: true}, h('summary', {class: 'soft'}, 'What goes with it'), tree(one.data, {open: 2, run: one.run})),
      h('form', {class: 'fields', novalidate: true, onsubmit: submit},
        fields?.element ?? null,
        schema.description && buttons ? h('p', {class: 'soft'}, schema.description) : null,
        said,
        h('div', {class: 'actions begin'}, buttons
          ? buttons.map((choice, i) => h('button', {type: i ? 'button' : 'submit', class: i ? '' : 'primary', onclick: i ? () => answer(choice.value) : null}, choice.label, i ? null : h('kbd', {'aria-hidden': 'true'}, '⌘⏎')))
          : h('button', {class: 'primary'}, 'Answer', h('kbd', {'aria-hidden': 'true'}, '⌘⏎')))),
      one.timeout_action ? h('p', {class: 'soft'}, 'If nobody answers in time: ', h('code', {}, one.timeout_action)) : null,
    )
  }
}

customElements.define('cb-inbox', InboxView)
