// The waterfall: a tree of spans as text, and beside it the same spans on a canvas, over time.

import {framed, h} from '../lib/dom.js'
import {count, duration, grouped} from '../lib/format.js'
import {List} from '../lib/list.js'
import {foremost} from '../lib/run.js'
import {scaleOf} from '../lib/scale.js'
import {chip, look} from '../lib/status.js'
import {Executions, numbered} from './executions.js'

/** @typedef {import('../lib/run.js').Run} Run */
/** @typedef {import('../lib/run.js').Span} Span */

const ROW_PX = 26
const HEAD_PX = 26
const BAR_PX = 12
const FOLD_PX = 70
/** Room for what is said of a folded stretch. */
/** What spans that are no nodes are called. @type {Record<string, string>} */
const NAMES = {model: 'model', tool: 'tool', effect: 'effect', timer: 'timer', human: 'question', signal: 'signal', child: 'run', pause: 'pause'}

export class Waterfall {
  /** @param {{chosen: (span: Span) => void, opened: (span: Span) => void, event: (n: number) => Promise<any>}} given */
  constructor(given) {
    this.given = given
    /** @type {Span[]} */
    this.lines = []
    /** @type {Set<string>} */
    this.folded = new Set()
    /** @type {Run|null} */
    this.run = null
    this.n = 0
    this.whole = true
    /** The selected span. @type {Span|null} */
    this.chosen = null
    /** The fan-out whose members are listed. @type {Span|null} */
    this.fan = null
    /** Whether the active row is that of the fan-out, and not of what is selected. */
    this.atFan = false
    /** What is shown of it, so that the same is not made anew. */
    this.shown = ''
    this.canvas = h('canvas', {'aria-hidden': 'true'})
    this.list = new List({
      label: 'Waterfall', role: 'treegrid', height: ROW_PX, row: (index) => this.row(index),
      name: (index) => this.lines[index].id,
      head: h('div', {class: 'span-row head', role: 'row'}, h('span', {role: 'columnheader'}, 'What'), h('span', {role: 'columnheader', class: 'heard'}, 'Took')),
      chosen: (index) => this.choose(this.lines[index]),
      opened: (index) => given.opened(this.lines[index]),
      drawn: () => this.paint(),
    })
    this.list.element.prepend(h('div', {class: 'over'}, this.canvas))
    this.list.element.addEventListener('keydown', (event) => this.key(event), {capture: true})
    this.table = new Executions({chosen: given.chosen, event: given.event, closed: () => this.unfold(null)})
    this.element = h('div', {class: 'waterfall'}, this.list.element, this.table.element)
    this.paint = framed(() => this.draw())
    this.closed = new AbortController()
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.paint(), {signal: this.closed.signal})
  }

  /**
   * @param {Run} run @param {number} n @param {Span|null} chosen
   * @param {boolean} [whole] whether all of it has been read
   * @param {boolean} [selected] whether somebody has selected it: then the fan-out that it is in opens
   */
  show(run, n, chosen, whole = this.whole, selected = false) {
    const looked = run.membersAround(chosen, n), fan = looked.at(-1)?.fan ?? null
    if (run !== this.run) this.fan = null
    if (selected && chosen !== this.chosen) {
      this.atFan = false
      this.fan = fan ?? this.fan
    }
    if (this.fan && run.fanOf(this.fan.members[0], n) !== this.fan) this.fan = null
    const shown = [run.version, n, whole, this.fan?.id, ...looked.map((one) => one.id), ...this.folded].join()
    const anew = run !== this.run || shown !== this.shown
    this.chosen = chosen
    this.whole = whole
    if (anew) {
      this.shown = shown
      this.run = run
      this.n = n
      this.lines = run.lines(n, this.folded, looked)
      this.live = whole && !run.final && n >= run.last
      this.scale = scaleOf(run, n, this.until())
    }
    const at = this.atFan ? this.fan : chosen
    const active = at ? this.lines.indexOf(at) : -1
    if (anew) this.list.set(this.lines.length, {active})
    else if (active !== this.list.active) this.list.mark(active)
    const {fan: listed} = this
    this.table.show(listed && {run, n, name: listed.name, members: run.begun(listed, n), chosen: itemOf(looked.find((one) => one.fan === listed)), until: this.until()})
  }

  /** @param {Span} one */
  choose(one) {
    if (one.kind === 'fan') return this.unfold(one)
    this.atFan = false
    this.given.chosen(one)
  }

  /** List the members of a fan-out. @param {Span|null} fan null: of none */
  unfold(fan) {
    this.atFan = fan !== null
    this.fan = fan
    if (this.run) this.show(this.run, this.n, this.chosen)
  }

  until() {
    const run = /** @type {Run} */ (this.run)
    const last = run.rows[Math.min(this.n, run.last) - 1]?.time ?? Date.now()
    return this.live ? Math.max(last, Date.now()) : last
  }

  close() {
    this.closed.abort()
    this.list.close()
    this.table.close()
  }

  /** Time goes on: for what is open, and on the canvas. */
  tick() {
    if (!this.run || !this.live) return
    this.scale = scaleOf(this.run, this.n, this.until())
    this.list.renew([...this.list.made.keys()].filter((index) => (this.lines[index]?.n1 ?? 0) > this.n))
    this.table.tick(this.until())
    this.paint()
  }

  /** @param {number} index */
  row(index) {
    const one = this.lines[index]
    const run = /** @type {Run} */ (this.run)
    const fan = one.kind === 'fan'
    const inner = fan || one.children.some((child) => child.n0 <= this.n)
    const shut = fan ? this.fan !== one : this.folded.has(one.id)
    const toggle = inner
      ? h('button', {class: 'fold', tabindex: '-1', 'aria-label': fan ? (shut ? 'List' : 'Close the list') : shut ? 'Unfold' : 'Fold', onclick: (/** @type {Event} */ event) => {
        event.preventDefault()
        if (fan) this.unfold(shut ? one : null)
        else this.fold(one, !shut)
      }}, shut ? '▸' : '▾')
      : h('span', {class: 'fold'})
    const status = run.outcomeAt(one, this.n)
    const slot = one.kind === 'model' ? h('span', {class: 'soft'}, ` ${one.key.slice(one.key.lastIndexOf('!') + 1)}`) : null
    const tried = one.item && one.kind !== 'timer' ? `, try ${one.key.slice(one.key.lastIndexOf('.') + 1)}` : ''
    const many = run.fanOf(one, this.n) ? h('span', {class: 'soft'}, ` ${numbered(one)}${tried}`) : one.kind === 'node' && (run.byPath.get(one.path)?.length ?? 0) > 1 ? h('span', {class: 'soft'}, ` #${one.iteration}`) : null
    const kind = one.kind in NAMES ? h('span', {class: 'kind'}, NAMES[one.kind]) : null
    const name = h('span', {role: 'gridcell', class: 'c0 span-name'}, toggle, chip(status, {small: true}), kind, h('span', {class: 'named', title: one.name}, fan ? `${grouped(run.begun(one, this.n).length)} × ` : null, one.name || one.path || 'run', many, slot, fan ? said(one) : null))
    const depth = one.depth + run.membersAround(one, this.n).length
    name.style.setProperty('padding-left', `${Math.min(depth, 12) * 14}px`)
    return h(
      'div',
      {class: 'span-row', role: 'row', 'aria-level': depth + 1, 'aria-expanded': inner ? String(!shut) : null, data: {n: one.n0}},
      name,
      h('span', {role: 'gridcell', class: 'heard'}, `${duration(this.length(one))}${one.tokens ? `, ${count(one.tokens)} tokens` : ''}`),
    )
  }

  /** How long a span took, or takes until now. @param {Span} one */
  length(one) {
    return /** @type {Run} */ (this.run).lasted(one, this.n, this.until()) / 1000
  }

  /** @param {Span} one @param {boolean} shut */
  fold(one, shut) {
    if (shut) this.folded.add(one.id)
    else this.folded.delete(one.id)
    if (this.run) this.show(this.run, this.n, this.chosen)
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const one = this.lines[this.list.active]
    if (!one || event.ctrlKey || event.metaKey || event.altKey) return
    const left = event.key === 'h' || event.key === 'ArrowLeft', right = event.key === 'l' || event.key === 'ArrowRight'
    if (!left && !right) return
    event.preventDefault()
    event.stopPropagation()
    const fan = one.kind === 'fan', above = this.run?.fanOf(one, this.n) ?? one.parent
    const inner = one.children.length > 0, shut = fan ? this.fan !== one : this.folded.has(one.id)
    if (fan && left !== shut) this.unfold(left ? null : one)
    else if (left && inner && !shut) this.fold(one, true)
    else if (left && above) this.list.choose(this.lines.indexOf(above))
    else if (right && inner && shut) this.fold(one, false)
    else if (right && inner) this.list.choose(this.list.active + 1)
  }

  draw() {
    const {canvas} = this, {top} = this.list
    const {height, width: all, column: left} = this.list.seen
    const width = Math.max(0, all - left)
    const ratio = devicePixelRatio || 1
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio)
      canvas.height = Math.round(height * ratio)
      canvas.style.setProperty('width', `${width}px`)
      canvas.style.setProperty('height', `${height}px`)
    }
    canvas.style.setProperty('left', `${left}px`)
    const pen = canvas.getContext('2d')
    if (!pen || !this.scale || !this.run || width < 40) return
    pen.setTransform(ratio, 0, 0, ratio, 0, 0)
    pen.clearRect(0, 0, width, height)
    const colours = palette(this.list.element)
    this.axis(pen, width, height, colours)
    const first = Math.floor(top / ROW_PX)
    const last = Math.min(this.lines.length, Math.ceil((top + height) / ROW_PX))
    pen.save()
    pen.beginPath()
    pen.rect(0, HEAD_PX, width, height - HEAD_PX)
    pen.clip()
    for (let i = first; i < last; i++) this.bar(pen, this.lines[i], HEAD_PX + i * ROW_PX - top, width, colours)
    pen.restore()
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} height @param {Record<string, string>} colours */
  axis(pen, width, height, colours) {
    const {marks, folds} = /** @type {import('../lib/scale.js').Scale} */ (this.scale)
    const inner = width - 76
    pen.font = `11px ${colours.font}`
    pen.textBaseline = 'middle'
    pen.lineWidth = 1
    let free = -1
    for (const mark of marks) {
      const x = Math.round(4 + mark.at * inner) + 0.5
      pen.strokeStyle = colours.line
      pen.beginPath()
      pen.moveTo(x, HEAD_PX)
      pen.lineTo(x, height)
      pen.stroke()
      if (x < free || folds.some((fold) => Math.abs(4 + fold.at * inner - x) < FOLD_PX)) continue
      const text = mark.seconds ? duration(mark.seconds) : '0'
      pen.fillStyle = colours.soft
      pen.fillText(text, x + 3, HEAD_PX / 2)
      free = x + pen.measureText(text).width + 5
    }
    for (const fold of folds) {
      const x = 4 + fold.at * inner
      pen.strokeStyle = colours.soft
      pen.setLineDash([2, 3])
      pen.beginPath()
      pen.moveTo(x, HEAD_PX)
      pen.lineTo(x, height)
      pen.stroke()
      pen.setLineDash([])
      const text = `⋯ ${duration(fold.seconds)}`
      const room = pen.measureText(text).width
      pen.fillStyle = colours.panel
      pen.fillRect(x - room / 2 - 3, 4, room + 6, HEAD_PX - 8)
      pen.fillStyle = colours.ink
      pen.fillText(text, x - room / 2, HEAD_PX / 2)
    }
  }

  /** @param {CanvasRenderingContext2D} pen @param {Span} one @param {number} top @param {number} width @param {Record<string, string>} colours */
  bar(pen, one, top, width, colours) {
    const scale = /** @type {import('../lib/scale.js').Scale} */ (this.scale)
    const run = /** @type {Run} */ (this.run)
    const inner = width - 76
    const done = one.n1 <= this.n
    const x0 = 4 + scale.place(run.beganAt(one, this.n)) * inner
    const x1 = 4 + scale.place(done ? one.t1 : scale.until) * inner
    const long = Math.max(x1 - x0, 2)
    const [kind] = look(run.outcomeAt(one, this.n))
    const y = top + (ROW_PX - BAR_PX) / 2
    const thin = ['node', 'run', 'fan'].includes(one.kind)
    pen.fillStyle = colours[kind]
    pen.globalAlpha = thin ? 0.32 : 0.92
    round(pen, x0, thin ? y + 2 : y, long, thin ? BAR_PX - 4 : BAR_PX)
    pen.globalAlpha = 1
    if (thin) {
      pen.fillRect(x0, y + 2, 2, BAR_PX - 4)
      if (done) pen.fillRect(x0 + long - 2, y + 2, 2, BAR_PX - 4)
    }
    if (this.lines[this.list.active] === one) {
      pen.strokeStyle = colours.ink
      pen.lineWidth = 1
      pen.strokeRect(x0 - 2.5, y - 2.5, long + 5, BAR_PX + 5)
    }
    pen.fillStyle = colours.soft
    pen.fillText(duration(this.length(one)), x0 + long + 6, top + ROW_PX / 2 + 1)
  }
}

/** What of a fan-out is not as it should be, or not yet. @param {Span} fan */
function said({counts}) {
  const words = [...counts ?? []].filter(([outcome]) => look(outcome)[0] !== 'ok').sort(([a], [b]) => foremost(b) - foremost(a)).map(([outcome, count]) => `, ${grouped(count)} ${look(outcome)[2]}`)
  return words.length ? h('span', {class: 'soft'}, words) : null
}

/** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} width @param {number} height */
function round(pen, x, y, width, height) {
  pen.beginPath()
  pen.roundRect(x, y, width, height, Math.min(3, width / 2))
  pen.fill()
}

/** @param {Element} element @returns {Record<string, string>} */
function palette(element) {
  const style = getComputedStyle(element)
  const names = ['running', 'ok', 'failed', 'waiting-bar', 'paused', 'cancelled', 'plain', 'line', 'soft', 'ink', 'panel']
  const found = Object.fromEntries(names.map((name) => [name.replace('-bar', ''), style.getPropertyValue(`--${name}`).trim()]))
  return {...found, font: style.fontFamily}
}

/** The item that a try is of. @param {Span} [one] */
const itemOf = (one) => one?.item ?? one ?? null
