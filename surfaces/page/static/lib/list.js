// A list of any length, of which only the visible rows are elements; keys move through it.

import {framed, h} from './dom.js'

const SPARE = 3
/** Rows kept ready above and below what is seen. */

const CLICK_AGAIN_MS = 500
/** How long after a click a second one may make it a double one. */

const LOOK_MS = 100
/** How soon after it was scrolled here one looks whether somebody has scrolled it on at the same time. */

let lists = 0

/**
 * @typedef {object} Given
 * @property {string} label what those hear who do not see it
 * @property {number} height of a row, in pixels
 * @property {(index: number) => HTMLElement} row makes the row of an index
 * @property {(index: number) => string} name of the row of an index, by which it is found again where others come and go
 * @property {string} [role] grid or treegrid
 * @property {HTMLElement} [head] the row of headings
 * @property {(index: number) => void} [chosen] a row is gone to
 * @property {(index: number) => void} [opened] a row is opened
 * @property {boolean} [opens] whether a click opens a row, and not only chooses it
 * @property {() => void} [ended] the last rows are seen
 * @property {(first: number, last: number) => void} [drawn]
 * @property {() => void} [released] rows may stand elsewhere again
 */

export class List {
  /** @param {Given} given */
  constructor(given) {
    this.given = given
    this.count = 0
    this.active = -1
    /** The active row, wherever it stands. */
    this.named = ''
    this.id = `list-${++lists}`
    /** @type {Map<number, HTMLElement>} */
    this.made = new Map()
    /** Rows that are to be made anew: all of them, or some. */
    this.stale = false
    /** @type {Set<number>} */
    this.changed = new Set()
    /** The row that is to be seen when it is drawn next. */
    this.sought = -1
    /** What is seen of it, in pixels, as it was last laid out: to ask for that would have the page laid out once more. */
    this.seen = {top: 0, height: -1, width: 0, head: 0, column: 0}
    /** Whether somebody is about to click a row: what stands where is to stay. */
    this.held = false
    this.pressed = false
    /** Whether it is to be scrolled to where `seen` says, with its next drawing. */
    this.moving = false
    /** Whether it was scrolled so, and has not been told of it yet. */
    this.moved = false
    this.body = h('div', {class: 'list-body', role: 'rowgroup'})
    this.element = h(
      'div',
      {
        class: 'list', role: given.role ?? 'grid', tabindex: '0', 'aria-label': given.label,
        onscroll: () => this.told(), onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
        onclick: (/** @type {MouseEvent} */ event) => this.click(event),
        onpointerdown: (/** @type {PointerEvent} */ event) => this.press(event),
        ondblclick: () => this.active >= 0 && given.opened?.(this.active),
      },
      given.head ? h('div', {class: 'list-head', role: 'rowgroup'}, given.head) : null,
      this.body,
    )
    this.asked = framed(() => this.draw())
    this.sized = new ResizeObserver(() => this.resized())
    this.sized.observe(this.element)
  }

  /** It was scrolled: where it was scrolled to here is known, and what is seen there is drawn. */
  told() {
    if (!this.moved) return this.scrolled()
    this.moved = false
    // The person may have scrolled on; reading the position at once would force another layout.
    clearTimeout(this.looking)
    this.looking = setTimeout(() => this.element.scrollTop !== this.top && this.scrolled(), LOOK_MS)
  }

  scrolled() {
    this.measure()
    this.asked()
  }

  /** The active row, if it was seen, stays so. */
  resized() {
    const {height} = this.given, {clientHeight, clientWidth, isConnected} = this.element
    // A detached element has no size, and the first rows are measured before this event arrives.
    if (!isConnected || (clientHeight === this.seen.height && clientWidth === this.seen.width)) return
    const from = this.active * height, until = from + height + this.seen.head
    if (this.active >= 0 && from >= this.top && until <= this.top + this.seen.height) this.sought = this.active
    this.scrolled()
  }

  /** Know its size: for lists that stand together that is best asked before any is filled, as the page is laid out for it. */
  measured() {
    if (this.seen.height < 0) this.measure()
  }

  measure() {
    const {scrollTop: top, clientHeight: height, clientWidth: width} = this.element, {head} = this.given
    const first = /** @type {HTMLElement|undefined} */ (head?.firstElementChild)
    this.seen = {top: this.moving ? this.seen.top : top, height, width, head: head ? this.body.offsetTop : 0, column: first?.offsetWidth ?? 0}
  }

  /** How far it is scrolled, in pixels: of a list that has become shorter less is left to be scrolled past. */
  get top() {
    return Math.min(this.seen.top, this.most)
  }

  get most() {
    const {height, head} = this.seen
    return Math.max(0, head + this.count * this.given.height - height)
  }

  /** Whether the last row is seen. */
  get atEnd() {
    return !this.count || this.top >= this.most - this.given.height
  }

  /**
   * Have so many rows, and make those that are seen anew.
   * @param {number} count
   * @param {{sought?: number, active?: number}} [rows] the one that is to be seen, and the active one if that may be another
   */
  set(count, {sought = -1, active} = {}) {
    this.count = count
    this.body.style.setProperty('height', `${count * this.given.height}px`)
    this.element.setAttribute('aria-rowcount', String(count))
    if (this.active >= 0) this.active = this.place(this.named, this.active)
    if (active !== undefined && active !== this.active) {
      this.name(active)
      this.sought = active
    }
    if (sought >= 0) this.sought = sought
    this.stale = true
    // The first rows are drawn without waiting for the next frame.
    if (this.made.size) this.asked()
    else this.draw()
  }

  /** Have some rows made anew, those of them that are seen. @param {Iterable<number>} indices */
  renew(indices) {
    for (const index of indices) this.changed.add(index)
    this.asked()
  }

  /** Where a row stands now, that stood near an index; -1 if nowhere. @param {string} name @param {number} near */
  place(name, near) {
    for (let off = 0; near - off >= 0 || near + off < this.count; off++) {
      for (const index of [near + off, near - off]) if (index >= 0 && index < this.count && this.given.name(index) === name) return index
    }
    return -1
  }

  /** @param {number} index */
  reveal(index) {
    const {height} = this.given
    const top = index * height, room = this.seen.height - this.seen.head
    if (top < this.top) this.scroll(top)
    else if (top + height > this.top + room) this.scroll(top + height - room)
  }

  /** Have it scrolled when it is drawn next. @param {number} top in pixels */
  scroll(top) {
    const to = Math.min(top, this.most)
    // Scrolling forces a layout, even if there is nothing to scroll.
    if (to === this.seen.top) return
    this.seen.top = to
    this.moving = true
  }

  /** Make a row the active one without telling anybody. @param {number} index @param {boolean} [seen] */
  mark(index, seen = true) {
    // No other row changes its look.
    const before = this.active
    this.name(index)
    // The position is read when rows are drawn: reading it now would force another layout.
    if (index >= 0 && seen) this.sought = index
    this.renew([before, index])
  }

  /** @param {number} index of the row that is the active one from now on, -1 for none */
  name(index) {
    this.active = index
    this.named = index < 0 ? '' : this.given.name(index)
  }

  /** @param {number} index */
  choose(index) {
    if (!this.count) return
    this.mark(Math.max(0, Math.min(index, this.count - 1)))
    this.given.chosen?.(this.active)
  }

  draw() {
    // A detached list requests no rows; once it is attached again, its size triggers that.
    if (!this.element.isConnected) return
    this.measured()
    if (this.sought >= 0) this.reveal(this.sought)
    this.sought = -1
    const {top} = this, {height} = this.given
    const first = Math.max(0, Math.floor(top / height) - SPARE)
    const last = Math.min(this.count, Math.ceil((top + this.seen.height) / height) + SPARE)
    for (const [index, row] of this.made) {
      // A click needs the same element for pressing and releasing, so the element is kept until then.
      if (((this.stale || this.changed.has(index)) && !this.pressed) || index < first || index >= last) {
        row.remove()
        this.made.delete(index)
      }
    }
    if (!this.pressed) {
      this.stale = false
      this.changed.clear()
    }
    for (let index = first; index < last; index++) if (!this.made.has(index)) this.make(index)
    // The scroll position is laid out with the rows that exist now.
    if (this.moving) this.element.scrollTop = this.seen.top
    this.moved ||= this.moving
    this.moving = false
    const active = this.made.get(this.active)
    if (active) this.element.setAttribute('aria-activedescendant', active.id)
    else this.element.removeAttribute('aria-activedescendant')
    this.given.drawn?.(first, last)
    if (last === this.count) this.given.ended?.()
  }

  /** @param {number} index */
  make(index) {
    const row = this.given.row(index)
    row.id = `${this.id}-${index}`
    row.classList.add('list-row')
    row.dataset.index = String(index)
    row.dataset.name = this.given.name(index)
    row.setAttribute('aria-rowindex', String(index + 1))
    row.setAttribute('aria-selected', String(index === this.active))
    row.style.setProperty('transform', `translateY(${index * this.given.height}px)`)
    row.style.setProperty('height', `${this.given.height}px`)
    this.made.set(index, row)
    this.body.append(row)
  }

  /** @param {PointerEvent} event */
  press(event) {
    // Releasing the scrollbar fires no event.
    if (!(/** @type {Element} */ (event.target).closest('.list-row'))) return
    this.pressed = this.held = true
    clearTimeout(this.holding)
    this.pressing?.abort()
    const over = (this.pressing = new AbortController())
    for (const name of ['pointerup', 'pointercancel']) addEventListener(name, () => {
      over.abort()
      this.pressed = false
      this.asked()
      this.holding = setTimeout(() => this.release(), CLICK_AGAIN_MS)
    }, {signal: over.signal})
  }

  release() {
    this.held = false
    this.given.released?.()
  }

  /** @param {MouseEvent} event */
  click(event) {
    const row = /** @type {Element} */ (event.target).closest('.list-row')
    if (!(row instanceof HTMLElement) || event.defaultPrevented) return
    // Until it is redrawn it shows the old row, which may have moved.
    const index = this.place(row.dataset.name ?? '', Number(row.dataset.index))
    if (index < 0) return
    this.choose(index)
    const own = /** @type {Element} */ (event.target).closest('a, button, input, label'), marked = getSelection()?.toString()
    if (this.given.opens && !own && !marked && !event.metaKey && !event.ctrlKey && !event.shiftKey) this.given.opened?.(index)
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.given.height) - 1)
    /** @type {Record<string, number>} */
    const moves = {ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count}
    if (event.key in moves) this.choose(this.active + moves[event.key])
    else if (event.key === 'Enter' && this.active >= 0) this.given.opened?.(this.active)
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  close() {
    this.pressing?.abort()
    clearTimeout(this.holding)
    clearTimeout(this.looking)
    this.sized.disconnect()
  }
}

/**
 * A cell, where what it says needs no element of its own.
 * @param {Record<string, any>} given
 * @param {...import('./dom.js').Child} children
 */
export const cell = (given, ...children) => h('span', {...given, role: 'gridcell'}, ...children)

/**
 * A row of cells.
 * @param {string} kind
 * @param {(Node|string)[]} cells
 * @param {Record<string, any>} [given]
 */
export function row(kind, cells, given = {}) {
  const made = cells.map((one) => (one instanceof HTMLElement && one.role === 'gridcell' ? one : cell({}, one)))
  made.forEach((one, i) => one.classList.add(`c${i}`))
  return h('div', {class: kind, role: 'row', ...given}, made)
}

/** @param {string} kind @param {string[]} names */
export const headings = (kind, names) =>
  h('div', {class: `${kind} head`, role: 'row'}, names.map((name, i) => h('span', {role: 'columnheader', class: `c${i}`}, name)))
