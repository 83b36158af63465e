// The inbox: all open questions of all runs, their answers, and the questions that were answered.

import {get, to} from '../lib/api.js'
import {fill, h, say, settle} from '../lib/dom.js'
import {duration, grouped, instant, left, short, when} from '../lib/format.js'
import {chip} from '../lib/status.js'
import {List} from '../lib/list.js'
import {gather, open, watch} from '../lib/questions.js'
import {note} from './going.js'
import {failure, nothing} from './parts.js'
import {Question, titleOf} from './question.js'

const ROW_PX = 58
const TICK_MS = 1_000
const CLOSED_MAX = 200

/** Questions that somebody has begun to answer, by their names: whoever comes back to one goes on there. @type {Map<string, Question>} */
const begun = new Map()

/** @param {any} one */
const nameOf = (one) => `${one.run} ${one.key}`

export class InboxView extends HTMLElement {
  /** @type {Question|null} the one in the panel: no other takes its place but if somebody chooses it */
  shown = null
  /** @type {HTMLElement|null} what was answered last, for as long as nothing else is chosen */
  thanks = null

  /** @param {import('../lib/urls.js').Place} place */
  show(place) {
    const named = [place.query.get('run'), place.query.get('key')].filter(Boolean).join(' ')
    const stays = this.shown && this.questions.some((one) => nameOf(one) === nameOf(this.shown.one))
    this.asked = named || (stays ? nameOf(this.shown.one) : '')
    this.thanks = null
    this.closed = place.query.get('show') === 'closed'
    for (const link of this.kinds.children) {
      if (this.closed === (/** @type {HTMLElement} */ (link).dataset.kind === 'closed')) link.setAttribute('aria-current', 'true')
      else link.removeAttribute('aria-current')
    }
    this.board.hidden = this.closed
    this.history.hidden = !this.closed
    this.classList.toggle('reading', Boolean(named))
    if (this.closed) this.past()
    this.draw()
  }

  connectedCallback() {
    /** @type {any[]} */
    this.questions = []
    /** Those that are too many to list included. */
    this.total = 0
    /** Whether they have come, so that none says something. */
    this.read = false
    this.list = new List({
      label: 'Open questions', height: ROW_PX, row: (index) => this.row(index),
      name: (index) => nameOf(this.questions[index]),
      chosen: (index) => this.choose(this.questions[index]), opened: () => this.shown?.focus(),
      released: () => this.take(open.questions, open.count),
    })
    this.count = h('span', {class: 'soft', role: 'status'})
    this.late = h('div')
    this.closed = false
    this.kinds = h('nav', {class: 'kinds', 'aria-label': 'Which questions'}, h('a', {href: to(['inbox']), data: {kind: 'open'}}, 'Open'), h('a', {href: to(['inbox'], {show: 'closed'}), data: {kind: 'closed'}}, 'Answered'))
    this.history = h('div', {class: 'sheet scrolls', hidden: true})
    this.panel = h('section', {class: 'question', 'aria-label': 'The question'})
    this.board = h('div', {class: 'inbox'}, h('div', {class: 'sheet'}, this.list.element), this.panel)
    fill(this, h('div', {class: 'bar'}, h('h1', {}, 'Inbox'), this.kinds, this.count), this.late, this.board, this.history)
    this.unwatch = watch(this)
    this.ticking = setInterval(() => this.tick(), TICK_MS)
    this.addEventListener('keydown', (event) => {
      if ((event.metaKey || event.ctrlKey) && event.key === 'Enter') {
        event.preventDefault()
        if (!event.repeat) this.shown?.form.requestSubmit()
      }
    })
  }

  disconnectedCallback() {
    this.leave()
    this.unwatch?.()
    this.list.close()
    clearInterval(this.ticking)
  }

  /** @param {any[]} questions @param {number} total */
  take(questions, total) {
    const names = new Set(questions.map(nameOf))
    for (const name of begun.keys()) if (!names.has(name)) begun.delete(name)
    if (this.list.held) return
    if (questions.length > this.questions.length && this.questions.length) say(`${total} open questions`)
    this.questions = questions
    this.total = total
    this.read = true
    if (this.closed) this.past()
    this.draw()
  }

  /** The questions that were closed last, and how. */
  async past() {
    const {history} = this
    try {
      const {questions} = await get(['questions', 'closed'], {limit: CLOSED_MAX})
      if (!questions.length) return fill(history, nothing('No answered questions', 'Answers appear here with the person who gave them, their comments and their times.'))
      settle(history, h('table', {class: 'past'}, h('thead', {}, h('tr', {}, ['Question', 'Answer', 'Comment', 'By', 'Closed', 'Run'].map((one) => h('th', {scope: 'col'}, one)))), h('tbody', {}, questions.map(pastRow))))
    } catch (error) {
      fill(history, failure(error))
    }
  }

  /** What is listed already stays. @param {unknown} error */
  fail(error) {
    if (!this.read) fill(this.panel, failure(error))
  }

  draw() {
    if (!this.list || !this.read) return
    const {questions} = this
    this.count.textContent = questions.length ? `${grouped(this.total)} open` : ''
    // After an answer, the next question has to be chosen, so that a double click does not answer it.
    if (!this.asked && !this.thanks && questions.length) this.asked = nameOf(questions[0])
    const index = questions.findIndex((one) => nameOf(one) === this.asked)
    const anew = !this.shown || nameOf(this.shown.one) !== this.asked
    this.classList.toggle('bare', !questions.length && (anew || !this.asked))
    this.list.set(questions.length)
    this.list.mark(index, anew)
    if (!anew) return this.shown.close(index < 0)
    if (index >= 0) return this.open(questions[index])
    this.leave()
    const next = questions.length ? h('button', {onclick: () => this.choose(questions[0])}, 'Next question') : null
    fill(this.panel, questions.length ? h('a', {class: 'back', href: to(['inbox'])}, '‹ All questions') : null, this.thanks, this.thanks && next ? next
      : this.asked ? nothing('This question is not open', 'It has been answered or withdrawn.', next)
        : nothing('No open questions', 'Questions of all runs appear here as soon as they are asked, oldest first.'))
  }

  /** @param {any} one */
  choose(one) {
    this.asked = nameOf(one)
    this.thanks = null
    this.classList.add('reading')
    note({run: one.run, key: one.key})
    this.draw()
  }

  /** @param {number} index */
  row(index) {
    const one = this.questions[index]
    return h('div', {class: 'inbox-row', role: 'row'}, h('span', {role: 'gridcell'},
      h('span', {class: 'asked', dir: 'auto'}, short(titleOf(one.question || one.key)[0], 200)),
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
    this.leave()
    const given = {answered: (/** @type {Question} */ question) => this.answered(question), refused: (/** @type {Question} */ question, /** @type {unknown} */ error) => this.refused(question, error)}
    const left = begun.get(nameOf(one))
    if (left) left.given = given
    this.shown = left ?? new Question(one, this.age(one), given)
    fill(this.panel, h('a', {class: 'back', href: to(['inbox'])}, '‹ All questions'), this.shown.elements)
    this.panel.scrollTop = 0
    this.shown.close(false)
  }

  /** What is written into the question in the panel is kept for whoever comes back to it. */
  leave() {
    if (this.shown?.written && !this.shown.over) begun.set(nameOf(this.shown.one), this.shown)
    this.shown = null
  }

  /** @param {Question} question */
  answered(question) {
    const {one} = question
    begun.delete(nameOf(one))
    question.written = false
    gather()
    if (!this.isConnected) return
    // The person may have opened another question; its input is kept.
    if (this.shown !== question) return say(`answered ${one.run}`)
    this.thanks = h('p', {class: 'status ok', role: 'status'}, h('span', {class: 'glyph', 'aria-hidden': 'true'}, '✓'), `answered ${one.run}`)
    this.shown = null
    this.asked = ''
    note({run: null, key: null})
    const left = this.questions.filter((other) => nameOf(other) !== nameOf(one))
    this.total -= this.questions.length - left.length
    this.questions = left
    this.draw()
    this.list.element.focus()
  }

  /** Report a refused answer whose question is no longer shown. @param {Question} question @param {unknown} error */
  refused(question, error) {
    if (this.shown === question) return false
    fill(this.late, failure(error, `the answer to ${question.one.run} was refused`))
    return true
  }
}

/** A question that is no longer open. @param {any} one */
function pastRow(one) {
  const {comment, ...more} = one.data && typeof one.data === 'object' && !Array.isArray(one.data) ? one.data : {comment: one.data}
  const answer = one.cut ? h('a', {href: to(['runs', one.run], {n: one.n})}, 'long answer') : one.answer === undefined || one.answer === null ? '' : short(typeof one.answer === 'string' ? one.answer : JSON.stringify(one.answer), 300)
  return h('tr', {},
    h('td', {dir: 'auto'}, short(titleOf(one.question)[0], 200)),
    h('td', {}, one.outcome === 'answered' ? answer : chip(one.outcome)),
    h('td', {dir: 'auto'}, comment === undefined || comment === null ? '' : short(typeof comment === 'string' ? comment : JSON.stringify(comment), 300), Object.keys(more).length ? h('code', {class: 'soft'}, ` ${short(JSON.stringify(more), 120)}`) : null),
    h('td', {}, one.by ?? ''),
    h('td', {}, h('time', {datetime: one.closed_at, title: instant(one.closed_at)}, when(one.closed_at))),
    h('td', {}, h('a', {href: to(['runs', one.run], {n: one.n})}, one.run), h('div', {class: 'soft'}, one.definition)))
}

customElements.define('cb-inbox', InboxView)
