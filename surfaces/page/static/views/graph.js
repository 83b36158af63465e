// The graph: the drawing of a run's definition, coloured by the status of each node. The drawing itself never moves.

import {fill, h, s} from '../lib/dom.js'
import {get, Refused} from '../lib/api.js'
import {look} from '../lib/status.js'
import {failure, nothing} from './parts.js'

const LINE_PX = 17
const ZOOM_MIN = 0.2, ZOOM_MAX = 2.5, READABLE = 0.62
const ZOOM_STEP = 1.25
/** How large a small drawing becomes in the whole window. */
const WHOLE_MAX = 1.6
/** How far an arrow key moves the drawing. */
const MOVE_PX = 60
const FULL = 'Full screen'
const PAD_PX = 12
/** Room for what stands at the corners of cards. */
const NODES_MAX = 300
/** A larger drawing is only made if one wants it. */

export class Graph {
  /** @param {{chosen: (id: string) => void}} given */
  constructor(given) {
    this.given = given
    this.element = h('div', {class: 'graph'})
    /** @type {Map<string, {group: SVGElement, hit: SVGElement, glyph: SVGElement, badge: SVGElement, times: SVGElement, name: string}>} */
    this.nodes = new Map()
    /** Its nodes, by their ids. @type {string[]} */
    this.ids = []
    /** @type {{from: string, to: string, path: SVGElement, count: SVGElement|null}[]} */
    this.edges = []
    this.state = ''
    this.closed = false
    /** Whether all of it is to be seen, however small; else a large one is as large as it is readable. */
    this.all = false
    this.sized = new ResizeObserver(() => this.fitted && this.element.isConnected && this.zoom(0))
  }

  close() {
    this.closed = true
    this.sized.disconnect()
    this.element.closest('dialog')?.close()
  }

  /** @param {string} run */
  async load(run) {
    try {
      this.drawn(await get(['runs', run, 'graph'], {direction: 'TB'}))
    } catch (error) {
      const none = error instanceof Refused && error.status === 404
      fill(this.element, none ? nothing('No drawing', 'This run has no outline.') : failure(error))
    }
  }

  /** @param {any} scene */
  drawn(scene) {
    const real = scene.nodes.filter((/** @type {any} */ one) => one.is_node !== false)
    if (!real.length) return fill(this.element, nothing('No drawing', 'This definition has no outline.'))
    if (real.length > NODES_MAX && !this.wanted) {
      return fill(this.element, nothing(`${real.length} nodes`, 'For this many nodes, the waterfall is the better view.', h('button', {onclick: () => {
        this.wanted = true
        this.drawn(scene)
      }}, 'Draw them')))
    }
    const drawing = s('svg', {viewBox: `${-PAD_PX} ${-PAD_PX} ${scene.width + 2 * PAD_PX} ${scene.height + 2 * PAD_PX}`, role: 'group', 'aria-label': 'Graph of the definition', width: scene.width, height: scene.height})
    const edges = s('g'), labels = s('g'), nodes = s('g')
    drawing.append(nodes)
    for (const one of scene.nodes) nodes.append(this.node(one))
    nodes.before(edges)
    nodes.after(labels)
    for (const one of scene.edges) this.edge(one, edges, labels)
    for (const one of scene.marks ?? []) edges.append(s('circle', {cx: one.x, cy: one.y, r: one.kind === 'end' ? 6 : 5, class: `mark ${one.kind}`}))
    const frame = h('div', {class: 'graph-frame', tabindex: '0', role: 'group', 'aria-label': 'Drawing: arrow keys move it, + and − zoom, 0 shows it whole', onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event)})
    this.whole = h('button', {class: 'quiet', 'aria-label': FULL, title: 'Full screen (z)', onclick: () => this.fill()}, arrows())
    fill(this.element, frame, h('div', {class: 'zoom'}, this.zooms('−', 'Smaller', 1 / ZOOM_STEP), this.zooms(corners(), 'Whole', 0), this.zooms('+', 'Larger', ZOOM_STEP), this.whole))
    this.frame = frame
    this.drawing = drawing
    this.ids = [...this.nodes.keys()]
    this.size = {width: scene.width + 2 * PAD_PX, height: scene.height + 2 * PAD_PX}
    // It is inserted once its frame has a size: each change of the size costs a new layout.
    this.fitted = true
    this.sized.disconnect()
    if (!this.closed) this.sized.observe(frame)
  }

  /** @param {string|Node} glyph @param {string} label @param {number} factor */
  zooms(glyph, label, factor) {
    return h('button', {class: 'quiet', 'aria-label': label, title: label, onclick: () => {
      this.all = !factor
      this.zoom(factor)
    }}, glyph)
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const {key} = event
    if (event.ctrlKey || event.metaKey || event.altKey) return
    /** @type {Record<string, number>} */
    const factors = {'+': ZOOM_STEP, '=': ZOOM_STEP, '-': 1 / ZOOM_STEP, 0: 0}
    /** @type {Record<string, [number, number]>} */
    const moves = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}
    if (key in factors) {
      this.all = !factors[key]
      this.zoom(factors[key])
    } else if (key in moves) this.frame?.scrollBy(MOVE_PX * moves[key][0], MOVE_PX * moves[key][1])
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  /** Show the drawing in the whole window, until Escape or the same button ends that. */
  fill() {
    const {frame, element, whole} = this, home = element.parentElement
    if (!frame || !whole || !home || element.hidden) return
    if (home instanceof HTMLDialogElement) return home.close()
    const dialog = h('dialog', {class: 'whole-window', 'aria-label': 'Graph', onclose: () => {
      home.append(element)
      dialog.remove()
      whole.setAttribute('aria-label', FULL)
      whole.focus()
    }}, element)
    document.body.append(dialog)
    dialog.showModal()
    whole.setAttribute('aria-label', 'Leave full screen')
    frame.focus()
  }

  /** @param {number} factor 0: as large as its frame */
  zoom(factor) {
    const {frame, size, drawing} = this
    if (!frame || !size || !drawing) return
    const across = (frame.scrollLeft + frame.clientWidth / 2) / frame.scrollWidth, down = (frame.scrollTop + frame.clientHeight / 2) / frame.scrollHeight
    this.fitted = factor === 0
    const whole = Math.min((frame.clientWidth - 16) / size.width, (frame.clientHeight - 16) / size.height, frame.closest('dialog') ? WHOLE_MAX : 1)
    const fitting = this.all ? whole : Math.max(whole, ZOOM_MIN, Math.min(READABLE, (frame.clientWidth - 16) / size.width))
    this.scale = factor ? Math.max(Math.min(whole, ZOOM_MIN), Math.min(ZOOM_MAX, (this.scale ?? 1) * factor)) : fitting
    drawing.setAttribute('width', String(Math.round(size.width * this.scale)))
    drawing.setAttribute('height', String(Math.round(size.height * this.scale)))
    if (!drawing.parentNode) frame.append(drawing)
    // What was in the middle stays there.
    else if (factor) frame.scrollTo(across * frame.scrollWidth - frame.clientWidth / 2, down * frame.scrollHeight - frame.clientHeight / 2)
  }

  /** @param {any} one */
  node(one) {
    const {x, y, w, h: high} = one
    const box = one.shape === 'box'
    const lines = one.lines ?? [one.label]
    const top = box ? y + 20 : y + high / 2 - ((lines.length - 1 + (one.aside?.length ? 0.9 : 0)) * LINE_PX) / 2
    const texts = lines.map((/** @type {string} */ line, /** @type {number} */ i) => s('text', {x: x + w / 2, y: top + i * LINE_PX, class: 'label'}, line))
    const aside = [one.aside ?? []].flat().map((/** @type {string} */ line, /** @type {number} */ i) => s('text', {x: x + w / 2, y: top + (lines.length + i) * LINE_PX - 1, class: 'aside'}, line))
    const glyph = s('text', {x: x + w - 1, y: y + 1, class: 'glyph'})
    const badge = s('circle', {cx: x + w - 1, cy: y + 1, r: 10, class: 'badge none'})
    const times = s('text', {x: x + w - 14, y: y + high + 1, class: 'times'})
    const shape = s('rect', {x, y, width: w, height: high, rx: box ? 10 : 8, class: 'shape'})
    if (one.is_node === false) return s('g', {class: 'gbox'}, shape, texts)
    const choose = () => this.given.chosen(one.id)
    const name = [...lines, one.aside ?? []].flat().join(' ')
    // The button is separate from the drawing, whose texts are repeated in its label.
    const hit = s('rect', {x, y, width: w, height: high, rx: 8, class: 'hit', role: 'button', tabindex: '0', 'aria-label': name, onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== 'Enter' && event.key !== ' ') return
      event.preventDefault()
      choose()
    }})
    const drawn = s('g', {'aria-hidden': 'true'}, shape, texts, aside, badge, glyph, times)
    const group = s('g', {class: `gnode ${box ? 'gbox' : ''}`, data: {id: one.id}, onclick: choose}, drawn, hit)
    this.nodes.set(one.id, {group, hit, glyph, badge, times, name})
    return group
  }

  /** @param {any} one @param {SVGElement} ways @param {SVGElement} labels */
  edge(one, ways, labels) {
    const path = s('g', {class: `gedge${one.caught ? ' caught' : ''}`}, s('path', {d: one.d, class: 'way'}), one.head ? s('path', {d: one.head, class: 'head'}) : null)
    ways.append(path)
    let count = null
    if (one.at) {
      const {x, y, w, h: high} = one.at
      const lines = one.lines ?? [one.label]
      const label = s('g', {class: 'glabel'}, s('title', {}, one.label), s('rect', {x, y, width: w, height: high, rx: 6}), lines.map((/** @type {string} */ line, /** @type {number} */ i) => s('text', {x: x + w / 2, y: y + high / 2 + (i - (lines.length - 1) / 2) * 14}, line)))
      labels.append(label)
    }
    if (one.from && one.to) this.edges.push({from: one.from, to: one.to, path, count})
  }

  /**
   * Colour it.
   * @param {Map<string, {status: string, times: number}>} shown
   * @param {Set<string>} ways that were taken, `from to`
   * @param {string} chosen
   */
  colour(shown, ways, chosen) {
    const state = JSON.stringify([[...shown], [...ways], chosen])
    if (state === this.state) return
    this.state = state
    for (const [id, {group, hit, glyph, badge, times, name}] of this.nodes) {
      const one = shown.get(id)
      const [kind, sign, word] = look(one?.status ?? '')
      const own = `gnode${group.classList.contains('gbox') ? ' gbox' : ''}`
      group.setAttribute('class', `${own}${one ? ` ${kind}` : shown.size ? ' unreached' : ''}${id === chosen ? ' chosen' : ''}`)
      hit.setAttribute('aria-label', `${name}: ${one ? word : 'not reached'}${one && one.times > 1 ? `, ${one.times} times` : ''}`)
      hit.setAttribute('aria-pressed', String(id === chosen))
      glyph.textContent = one ? sign : ''
      badge.classList.toggle('none', !one)
      times.textContent = one && one.times > 1 ? `${one.times}×` : ''
    }
    for (const edge of this.edges) edge.path.classList.toggle('taken', ways.has(`${edge.from} ${edge.to}`))
  }
}

const arrows = () => s('svg', {viewBox: '0 0 12 12', width: '12', height: '12', 'aria-hidden': 'true'}, s('path', {d: 'M7 5l4-4M7 1h4v4M5 7l-4 4M1 7v4h4'}))

/** The sign for all of it is drawn: hardly a font has one, and to look for one takes longer than all the others. */
const corners = () => s('svg', {viewBox: '0 0 12 12', width: '12', height: '12', 'aria-hidden': 'true'}, s('path', {d: 'M1 4V1h3M8 1h3v3M11 8v3H8M4 11H1V8'}))
