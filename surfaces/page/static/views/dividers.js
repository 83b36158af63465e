// Dividers: the borders between panes, which are moved by the pointer or by arrow keys. A browser remembers where they are.

import {h} from '../lib/dom.js'

/** Where this browser keeps the sizes of the tracks, by their properties. */
const KEPT = 'callboard.panes'
const STEP = 2, LEAST = 12
/** In percent of the two panes together. */

/** @typedef {{at: number, property: string, size: number}} Track its place in the grid, its property and its usual size */
/**
 * A divider between two tracks of a grid, whose sizes in `fr` are custom properties of its element.
 * @typedef {{name: string, label: string, upright: boolean, before: Track, behind: Track}} Divided `upright`: the panes are beside each other
 */

/** Show the tracks in the sizes that this browser has kept. @param {HTMLElement} panes the element with the grid @param {Track[]} tracks */
export function sized(panes, tracks) {
  /** @type {Record<string, number>} */
  let kept = {}
  try {
    kept = JSON.parse(localStorage.getItem(KEPT) ?? '{}') ?? {}
  } catch {
    // Written by another program: the usual sizes are shown.
  }
  for (const {property, size} of tracks) panes.style.setProperty(property, `${kept[property] > 0 ? kept[property] : size}fr`)
}

/** @param {HTMLElement} panes the element with the grid @param {Divided} divided */
export function divider(panes, {name, label, upright, before, behind}) {
  const usual = (100 * before.size) / (before.size + behind.size)
  const sizes = () => [before, behind].map(({property}) => parseFloat(panes.style.getPropertyValue(property)))
  const share = () => (100 * sizes()[0]) / (sizes()[0] + sizes()[1])
  const say = () => element.setAttribute('aria-valuenow', String(Math.round(share())))
  /** @param {number} wanted */
  const set = (wanted) => {
    const both = sizes()[0] + sizes()[1], first = (both * Math.max(LEAST, Math.min(100 - LEAST, wanted))) / 100
    panes.style.setProperty(before.property, `${first}fr`)
    panes.style.setProperty(behind.property, `${both - first}fr`)
    const all = [...panes.style].filter((property) => property.startsWith('--'))
    localStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(all.map((property) => [property, parseFloat(panes.style.getPropertyValue(property))]))))
    for (const one of panes.querySelectorAll('.divider')) one.dispatchEvent(new CustomEvent('moved'))
  }
  /** @type {Record<string, () => number>} */
  const keys = {
    [upright ? 'ArrowLeft' : 'ArrowUp']: () => share() - STEP, [upright ? 'ArrowRight' : 'ArrowDown']: () => share() + STEP,
    Home: () => LEAST, End: () => 100 - LEAST, Enter: () => usual,
  }
  const element = h('div', {
    class: `divider ${name}`, role: 'separator', tabindex: '0', title: 'Drag, or use the arrow keys; double-click to reset', 'aria-label': label,
    'aria-orientation': upright ? 'vertical' : 'horizontal', 'aria-valuemin': String(LEAST), 'aria-valuemax': String(100 - LEAST),
    onmoved: say, ondblclick: () => set(usual),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      const to = keys[event.key]
      if (!to || event.ctrlKey || event.metaKey || event.altKey) return
      event.preventDefault()
      set(to())
    },
    onpointerdown: (/** @type {PointerEvent} */ event) => {
      element.setPointerCapture(event.pointerId)
      const at = upright ? event.clientX : event.clientY, began = share()
      const tracks = getComputedStyle(panes)[upright ? 'gridTemplateColumns' : 'gridTemplateRows'].split(' ').map(parseFloat)
      const pixels = tracks[before.at] + tracks[behind.at]
      element.onpointermove = (moved) => set(began + (100 * ((upright ? moved.clientX : moved.clientY) - at)) / pixels)
    },
    onlostpointercapture: () => {
      element.onpointermove = null
    },
  })
  say()
  return element
}
