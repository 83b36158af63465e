// Elements: helpers that build the page. Recorded data always becomes text; markup is never parsed.

const SVG = 'http://www.w3.org/2000/svg'

/** @typedef {Node|string|number|null|undefined|false} Child */

/**
 * Make an element. Of `given`, functions named `on…` listen, `style` and `data` are objects, true and false set or
 * leave out an attribute, everything else is one.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [given]
 * @param {...(Child|Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, given = {}, ...children) {
  const element = document.createElement(tag)
  equip(element, given)
  fill(element, ...children)
  return element
}

/**
 * Make an element of a drawing.
 * @param {string} tag
 * @param {Record<string, any>} [given]
 * @param {...(Child|Child[])} children
 * @returns {SVGElement}
 */
export function s(tag, given = {}, ...children) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SVG, tag))
  equip(element, given)
  fill(element, ...children)
  return element
}

/**
 * @param {HTMLElement|SVGElement} element
 * @param {Record<string, any>} given
 */
function equip(element, given) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else if (name === 'style') for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one)
    else if (name === 'data') Object.assign(element.dataset, value)
    else if (name === 'value' && 'value' in element) element.value = value
    else element.setAttribute(name, value === true ? '' : String(value))
  }
}

/**
 * Put children in place of what an element has.
 * @param {Element|DocumentFragment} element
 * @param {...(Child|Child[])} children
 */
export const fill = (element, ...children) => element.replaceChildren(...nodes(children))

/** @param {(Child|Child[])[]} children @returns {(Node|string)[]} */
const nodes = (children) => children.flat().filter((child) => child !== null && child !== undefined && child !== false).map((child) => (child instanceof Node ? child : String(child)))

/**
 * As `fill`; but what is there already stays the element that it is, with the focus, the selection and the menus that are
 * open in it. What listens has to be the same then, too: it is told by what it looks like and where it leads.
 * @param {Element} element
 * @param {...(Child|Child[])} children
 */
export function settle(element, ...children) {
  const wanted = nodes(children).map((child) => (typeof child === 'string' ? document.createTextNode(child) : child))
  let at = element.firstChild
  wanted.forEach((child, i) => {
    let found = at
    while (found && !equal(found, child)) found = found.nextSibling
    if (found) {
      while (at !== found) at = dropped(/** @type {ChildNode} */ (at))
      at = found.nextSibling
    } else if (at && alike(at, child) && !wanted.slice(i + 1).some((other) => equal(/** @type {Node} */ (at), other))) {
      if (at instanceof Element) settle(at, [...child.childNodes])
      else at.textContent = child.textContent
      at = at.nextSibling
    } else element.insertBefore(child, at)
  })
  while (at) at = dropped(at)
}

/** @param {ChildNode} node */
function dropped(node) {
  const next = node.nextSibling
  node.remove()
  return next
}

/** Elements that are what they are by what listens to them, or by what somebody has put there. */
const OWN = 'button, input, select, textarea, form, label'

/** Whether one may stand for the other. @param {Node} one @param {Node} other @returns {boolean} */
function equal(one, other) {
  if (!(one instanceof Element) || !(other instanceof Element)) return one.isEqualNode(other)
  // Whether an element is open is not part of its content.
  if (one.localName !== 'details') return one.isEqualNode(other)
  return other.localName === 'details' && one.childNodes.length === other.childNodes.length && [...one.childNodes].every((child, i) => child.isEqualNode(other.childNodes[i]))
}

/** Whether one becomes the other by its content alone. @param {Node} one @param {Node} other */
function alike(one, other) {
  return one instanceof Element && other instanceof Element ? !one.matches(OWN) && one.cloneNode(false).isEqualNode(other.cloneNode(false)) : one.nodeType === other.nodeType
}

/** What is to be drawn in the next frame, or in the one that is being drawn. @type {Set<() => void>} */
const undrawn = new Set()
let drawing = false
/** When something was drawn last. */
let drew = -Infinity

/**
 * Call a function at most once per frame, however often it is asked for. What a drawing asks for in turn is drawn in the
 * same frame, but where one drawing follows the other, and this one has taken long already, with the next.
 * @param {() => void} draw
 * @returns {() => void}
 */
export function framed(draw) {
  return () => {
    if (!undrawn.size && !drawing) requestAnimationFrame(frame)
    undrawn.add(draw)
  }
}

function frame() {
  const drawn = new Set(), began = performance.now(), busy = began - drew < BUSY_MS
  drawing = true
  // Elements that are added during the walk are visited, too.
  for (const draw of undrawn) {
    if (drawn.has(draw)) continue
    if (busy && performance.now() - began > SLOW_MS) break
    undrawn.delete(draw)
    drawn.add(draw)
    try {
      draw()
    } catch (error) {
      reportError(error)
    }
  }
  drawing = false
  drew = performance.now()
  if (undrawn.size) requestAnimationFrame(frame)
}

/**
 * As `framed`; but what takes long is called less often, so that most of the time is left to others.
 * @param {() => void} draw
 * @param {number} [rest] how long it rests in any case, in milliseconds
 * @returns {() => void}
 */
export function paced(draw, rest = 0) {
  let free = 0, waiting = 0
  const timed = framed(() => {
    const began = performance.now()
    draw()
    const now = performance.now()
    free = now + Math.max(rest, now - began > SLOW_MS ? REST_TIMES * (now - began) : 0)
  })
  return () => {
    if (waiting) return
    const wait = free - performance.now()
    if (wait <= 0) return timed()
    waiting = setTimeout(() => {
      waiting = 0
      timed()
    }, wait)
  }
}

const SLOW_MS = 10
const BUSY_MS = 100
const REST_TIMES = 2
/** How much longer a slow drawing rests than it took. */

/** Say something to those who hear the page, politely and not too often. */
const SPOKEN_MS = 5_000
let spoken = 0
let waiting = 0

/** @param {string} sentence */
export function say(sentence) {
  const region = document.getElementById('said')
  if (!region) return
  clearTimeout(waiting)
  waiting = setTimeout(() => {
    spoken = Date.now()
    region.textContent = sentence
  }, Math.max(0, spoken + SPOKEN_MS - Date.now()))
}
