// The source of a workflow in Python, with the current line of each of its tasks at a point of the run, in place of its
// graph.

import {get} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {failure, nothing} from './parts.js'

/** @typedef {{file: string, line: number, function: string, source: string}} Frame */
/** @typedef {{task: string, frames: Frame[], effect: {path: string, type: string, n: number|null}|null, tasks: string[], other: string, error: string}} Task */
/** @typedef {{at: number, entry: string, recorded: string, given: string, tasks: Task[], sources?: Record<string, string>}} Stacks */

/** Where this browser keeps whether the source is shown. */
const KEPT = 'callboard.source'
const SETTLE_MS = 150
/** A slider that moves passes many events: the source is asked for where it rests. */

export class Source {
  /** @param {HTMLElement} graph what is shown unless the source is wanted */
  constructor(graph) {
    this.graph = graph
    this.body = h('div', {class: 'sources', tabindex: '0', role: 'group', 'aria-label': 'Source'})
    this.buttons = ['Graph', 'Source'].map((word, i) => h('button', {class: 'quiet', onclick: () => this.want(i === 1)}, word))
    this.bar = h('div', {class: 'source-bar', role: 'group', 'aria-label': 'Graph or source'}, this.buttons)
    this.body.hidden = this.bar.hidden = true
    this.element = h('div', {class: 'source-pane'}, this.bar, this.body)
    this.wanted = localStorage.getItem(KEPT) === 'shown'
    this.shown = ''
    this.turn = 0
    this.waiting = 0
  }

  /** Ask for nothing more. */
  close() {
    this.turn++
    clearTimeout(this.waiting)
  }

  /** @param {boolean} wanted */
  want(wanted) {
    this.wanted = wanted
    localStorage.setItem(KEPT, wanted ? 'shown' : 'hidden')
    this.shown = ''
    if (this.looked) this.show(this.looked)
  }

  /** @param {{id: string, n: number}} looked the run, and the event after which it is looked at */
  show(looked) {
    this.looked = looked
    const {wanted} = this
    this.bar.hidden = false
    this.body.hidden = !wanted
    this.graph.hidden = wanted
    this.element.classList.toggle('wanted', wanted)
    this.buttons.forEach((button, i) => button.setAttribute('aria-pressed', String(wanted === (i === 1))))
    const shown = `${looked.id} ${looked.n}`
    if (!wanted || shown === this.shown) return
    this.shown = shown
    const turn = ++this.turn
    clearTimeout(this.waiting)
    this.waiting = setTimeout(() => this.fill(looked, turn), SETTLE_MS)
  }

  /** @param {{id: string, n: number}} looked @param {number} turn */
  async fill({id, n}, turn) {
    let content
    try {
      content = drawn(await get(['runs', id, 'stacks', String(n)]))
    } catch (error) {
      content = [failure(error)]
    }
    if (turn !== this.turn) return
    fill(this.body, content)
    const mark = this.body.querySelector('mark')
    // The pane is scrolled, and not the page.
    if (mark) this.body.scrollTop += mark.getBoundingClientRect().top - this.body.getBoundingClientRect().top - this.body.clientHeight / 2
  }
}

/** @param {Task} task */
const nameOf = (task) => task.task || 'workflow'

/** @param {Stacks} stacks @returns {import('../lib/dom.js').Child[]} */
function drawn({at, entry, recorded, given, tasks, sources = {}}) {
  const warning = recorded === given ? null : h('p', {class: 'failure'}, `The run had other sources at event ${at}: the lines are those of the sources that this server was given.`)
  if (!tasks.length) return [warning, nothing('No task', `At event ${at} no task of ${entry} is waiting: it has not begun or has ended.`)]
  return [
    warning,
    h('ul', {class: 'task-list'}, tasks.map((task) => h('li', {}, h('code', {}, nameOf(task)), h('span', {class: task.error ? 'code' : 'soft'}, ` ${waitsFor(task)}`)))),
    ...Object.entries(sources).map(([file, text]) => lines(file, text, tasks)),
  ]
}

/** @param {Task} task */
function waitsFor({effect, tasks, other, error}) {
  if (error) return error
  if (effect) return `waits for ${effect.path}${effect.type ? ` (${effect.type})` : ''}`
  if (tasks.length) return `waits for ${tasks.join(', ')}`
  return other ? `waits for ${other}` : 'runs'
}

/** A file with the lines at which tasks are: few elements, however long it is. @param {string} file @param {string} text @param {Task[]} tasks */
function lines(file, text, tasks) {
  /** @type {Map<number, string[]>} */
  const marked = new Map()
  for (const task of tasks) {
    for (const frame of task.frames) if (frame.file === file) marked.set(frame.line, [...(marked.get(frame.line) ?? []), nameOf(task)])
  }
  const all = text.replace(/\n$/, '').split('\n')
  /** @type {import('../lib/dom.js').Child[]} */
  const parts = []
  let plain = ''
  all.forEach((line, i) => {
    const names = marked.get(i + 1)
    if (!names) plain += `${line}\n`
    else {
      parts.push(plain, h('mark', {title: names.join(', '), data: {line: i + 1}}, line), '\n')
      plain = ''
    }
  })
  const gutter = all.map((_, i) => `${marked.has(i + 1) ? '▸ ' : ''}${i + 1}`).join('\n')
  return h('section', {}, h('h3', {class: 'mono'}, file), h('div', {class: 'code-lines'}, h('pre', {class: 'gutter', 'aria-hidden': 'true'}, gutter), h('pre', {}, parts, plain)))
}
