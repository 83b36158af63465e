// Elements: how the page is made. What is recorded becomes text and nothing else; no markup is ever parsed.

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
export function fill(element, ...children) {
  const found = children.flat().filter((child) => child !== null && child !== undefined && child !== false)
  element.replaceChildren(...found.map((child) => (child instanceof Node ? child : String(child))))
}

/**
 * Call a function at most once per frame, however often it is asked for.
 * @param {() => void} draw
 * @returns {() => void}
 */
export function framed(draw) {
  let asked = false
  return () => {
    if (asked) return
    asked = true
    requestAnimationFrame(() => {
      asked = false
      draw()
    })
  }
}

/**
 * As `framed`; but what takes long is called less often, so that most of the time is left to others.
 * @param {() => void} draw
 * @returns {() => void}
 */
export function paced(draw) {
  let free = 0, waiting = 0
  const timed = framed(() => {
    const began = performance.now()
    draw()
    const now = performance.now()
    free = now - began > SLOW_MS ? now + REST_TIMES * (now - began) : 0
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
