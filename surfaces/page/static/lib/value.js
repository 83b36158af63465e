// Values: any JSON as a tree that opens on demand; long texts and large values are loaded on request.

import {path} from './api.js'
import {h} from './dom.js'
import {bytes, some} from './format.js'
import {exactly, read} from './numbers.js'

const TEXT_MAX = 2_000
const ITEMS_MAX = 100
/** In how many values inside of one a file is looked for, which has the value open. */
const LOOKED_MAX = 500
/** What is shown of a text or a list before one asks for more. */
const CODE_CHARS = 20_000
/** Within so many characters it shows whether a text is code. */
/** Tracebacks, and lines that are indented as code is. */
const CODE = /^Traceback \(most recent call last\):|^ +(File "|at )|^( {2,}|\t)\S.*\n\1\s*\S/m

/**
 * @typedef {{is: (value: any) => boolean, show: (value: any) => HTMLElement}} Files what values are files, and how they are shown
 * @typedef {{open?: number, run?: string, leaf?: (text: string) => HTMLElement, files?: Files}} How `open`: how many levels are open; `leaf`: how a text in it is shown
 */

/**
 * @param {any} value
 * @param {How} [how]
 * @returns {HTMLElement}
 */
export function tree(value, how = {}) {
  const {open = 2, run = '', leaf = text, files} = how
  if (files?.is(value)) return files.show(value)
  if (typeof value === 'string') return leaf(value)
  const exact = exactly(value)
  if (exact !== null) return h('code', {class: 'json number'}, exact)
  if (value === null || typeof value !== 'object') return h('code', {class: `json ${value === null ? 'null' : typeof value}`}, String(value))
  if (isBlob(value)) return large(value, run, (loaded) => tree(loaded, {...how, open: 1}))
  const entries = Array.isArray(value) ? value.map((one, i) => /** @type {const} */ ([String(i), one])) : Object.entries(value)
  if (!entries.length) return h('code', {class: 'json'}, Array.isArray(value) ? '[]' : '{}')
  const list = h('dl', {class: 'json-members'})
  more(list, entries, 0, {...how, open})
  return list
}

/** @param {HTMLElement} list @param {(readonly [string, any])[]} entries @param {number} from @param {How} how */
function more(list, entries, from, how) {
  for (const [name, one] of entries.slice(from, from + ITEMS_MAX)) list.append(member(name, one, how))
  const next = from + ITEMS_MAX
  if (next >= entries.length) return
  const button = h('button', {class: 'quiet', onclick: () => {
    button.parentElement?.remove()
    more(list, entries, next, how)
  }}, `${some(entries.length - next, 'more', 'more')}`)
  list.append(h('div', {}, h('dt', {class: 'heard'}, 'more'), h('dd', {}, button)))
}

/** @param {string} name @param {any} value @param {How} how */
function member(name, value, how) {
  const {open = 0, files} = how
  const plain = value === null || typeof value !== 'object' || files?.is(value) || exactly(value) !== null || isBlob(value) || !Object.keys(value).length
  if (plain) return h('div', {}, h('dt', {}, name), h('dd', {}, tree(value, {...how, open: 0})))
  const inner = h('div', {class: 'inner'})
  const opened = open > 0 || (files !== undefined && holds(value, files))
  const details = h('details', {open: opened, ontoggle: () => {
    if (details.open && !inner.hasChildNodes()) inner.append(tree(value, {...how, open: open - 1}))
  }}, h('summary', {}, h('span', {class: 'json-name'}, name), h('span', {class: 'soft'}, ` ${summary(value)}`)))
  if (opened) inner.append(tree(value, {...how, open: open - 1}))
  details.append(inner)
  return h('div', {class: 'deep'}, h('dt', {class: 'heard'}, name), h('dd', {}, details))
}

/** Whether a file is inside of a value, which is looked at up to a bound. @param {any} value @param {Files} files */
function holds(value, files) {
  const left = [value]
  for (let looked = 0; left.length && looked < LOOKED_MAX; looked++) {
    const one = left.shift()
    if (files.is(one)) return true
    if (one !== null && typeof one === 'object') left.push(...Object.values(one).slice(0, ITEMS_MAX))
  }
  return false
}

/** @param {any} value */
function summary(value) {
  return Array.isArray(value) ? some(value.length, 'item') : `{${Object.keys(value).slice(0, 4).join(', ')}${Object.keys(value).length > 4 ? ', …' : ''}}`
}

/** A text as it is, its line breaks kept. @param {string} value @returns {HTMLElement} */
export function text(value) {
  const element = h('span', {class: CODE.test(value.slice(0, CODE_CHARS)) ? 'text mono' : 'text', dir: 'auto'}, value.slice(0, TEXT_MAX))
  if (value.length <= TEXT_MAX) return value === '' ? h('span', {class: 'text soft'}, '(empty)') : element
  const button = h('button', {class: 'quiet', onclick: () => {
    element.textContent = value
    button.remove()
  }}, `show all ${bytes(value.length)}`)
  return h('span', {}, element, ' ', button)
}

/** Whether a value is stored separately. @param {any} value */
export const isBlob = (value) => typeof value.$blob === 'string' && typeof value.bytes === 'number' && Object.keys(value).length === 2

/** A value that is stored separately. @param {{$blob: string, bytes: number}} marker @param {string} run @returns {Promise<any>} */
export async function blobOf(marker, run) {
  const answer = await fetch(path('runs', run, 'blob', marker.$blob), {credentials: 'same-origin'})
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`)
  return read(await answer.text())
}

/** @param {{$blob: string, bytes: number}} marker @param {string} run @param {(value: any) => HTMLElement} shown */
export function large(marker, run, shown) {
  const place = h('div', {}, h('span', {class: 'soft'}, `${bytes(marker.bytes)}, stored separately `))
  if (!run) return place
  const button = h('button', {class: 'quiet', onclick: async () => {
    try {
      place.replaceChildren(shown(await blobOf(marker, run)))
    } catch {
      button.textContent = 'cannot be read'
    }
  }}, 'show')
  place.append(button)
  return place
}
