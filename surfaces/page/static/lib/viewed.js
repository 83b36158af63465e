// Viewed: a recorded text or value as Markdown, as text or as JSON, as the reader prefers; with exact copies, pictures
// and files.

import {fill, h} from './dom.js'
import {bytes} from './format.js'
import {cut, isMarked, rendered} from './markdown.js'
import {read} from './numbers.js'
import {blobOf, isBlob, large, text, tree} from './value.js'

/** @typedef {'auto'|'markdown'|'text'|'json'} View */
/** @typedef {{run?: string, open?: number, as?: 'markdown'|'text'}} How `open`: levels of a value that are open; `as`: how a text is shown unless the reader has a preference */

/** Where this browser keeps how values are viewed. */
const KEPT = 'callboard.view'
/** @type {Record<View, string>} */
const WORDS = {auto: 'Auto', markdown: 'Markdown', text: 'Text', json: 'JSON'}
const VIEWS = /** @type {View[]} */ (Object.keys(WORDS))
/** Texts in values that are read as Markdown have at least so many characters, or several lines. */
const PROSE_CHARS = 80
const TRACEBACK = /^Traceback \(most recent call last\):/m
const DATA_ADDRESS = /^data:([\w.+-]+\/[\w.+-]+)(?:;[\w=.+-]+)*;base64,([A-Za-z0-9+/=\s]+)$/
const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}\s*$/
/** Pictures that browsers show without executing anything of them. */
const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp'])
const MEDIA = ['mimeType', 'mime_type', 'mediaType', 'media_type', 'contentType', 'content_type']

/** What is on the page draws itself anew when another view is chosen. @type {WeakMap<Element, () => void>} */
const drawn = new WeakMap()

/** @returns {View} */
function view() {
  const found = /** @type {View} */ (localStorage.getItem(KEPT))
  return VIEWS.includes(found) ? found : 'auto'
}

/** The choice of the view, which holds for everything that is shown in this browser. */
export function switcher() {
  const element = h('div', {class: 'views', role: 'group', 'aria-label': 'View of texts and values'}, VIEWS.map((one) => h('button', {class: 'quiet', data: {view: one}, onclick: () => prefer(one)}, WORDS[one])))
  press(element)
  return element
}

/** @param {Element} element */
function press(element) {
  for (const button of element.children) button.setAttribute('aria-pressed', String(/** @type {HTMLElement} */ (button).dataset.view === view()))
}

/** @param {View} chosen */
function prefer(chosen) {
  localStorage.setItem(KEPT, chosen)
  for (const element of document.querySelectorAll('.views')) press(element)
  for (const element of document.querySelectorAll('.viewed')) drawn.get(element)?.()
}

/** A value in the chosen view. @param {any} value @param {How} [how] @returns {HTMLElement} */
export function viewed(value, how = {}) {
  const element = h('div', {class: 'viewed'})
  const draw = () => fill(element, shown(value, how))
  drawn.set(element, draw)
  draw()
  return element
}

/** @param {any} value @param {How} how @returns {HTMLElement} */
function shown(value, how) {
  const {run = '', open = 2, as = 'text'} = how
  if (value !== null && typeof value === 'object' && isBlob(value)) return large(value, run, (loaded) => viewed(loaded, how))
  const file = fileIn(value)
  const chosen = view()
  if (file && chosen !== 'json') return picture(file)
  if (typeof value === 'string') {
    if (chosen === 'json') return asJson(value, how)
    const wanted = chosen === 'auto' ? (TRACEBACK.test(value) ? 'text' : as) : chosen
    return wanted === 'markdown' && isMarked(value) ? prose(value) : text(value)
  }
  if (value !== null && typeof value === 'object') {
    if (chosen === 'text') return h('pre', {class: 'source'}, text(JSON.stringify(value, null, 2)))
    const leaf = chosen === 'markdown' || (chosen === 'auto' && as === 'markdown') ? inside : undefined
    return tree(value, {open, run, leaf, files: chosen === 'json' ? undefined : FILES})
  }
  return tree(value, {open, run})
}

/** A text that is a member of a value. @param {string} value */
function inside(value) {
  return isMarked(value) && (value.length >= PROSE_CHARS || value.includes('\n')) && !TRACEBACK.test(value) ? prose(value) : text(value)
}

/** @param {string} value @param {How} how */
function asJson(value, {run = '', open = 2}) {
  if (/^\s*[[{]/.test(value)) {
    try {
      return tree(read(value), {open, run})
    } catch {
      // It only begins like JSON: it is shown as the text that it is.
    }
  }
  return h('div', {class: 'mono'}, text(JSON.stringify(value)))
}

/** A text as Markdown; until it has been read, as it is. @param {string} value */
function prose(value) {
  const at = cut(value)
  const first = value.slice(0, at), rest = value.slice(at)
  const element = h('div', {class: 'prose'}, text(first))
  rendered(first).then((made) => fill(element, made, rest ? further(rest) : null), () => fill(element, text(value)))
  return element
}

/** @param {string} rest what follows a text that is shown already */
function further(rest) {
  const button = h('button', {class: 'quiet', onclick: () => button.replaceWith(prose(rest))}, `show more, ${bytes(rest.length)} left`)
  return button
}

/** @typedef {{name: string, type: string, data: string, size: number}} File `data` in base64 */

/** @type {import('./value.js').Files} */
const FILES = {is: (value) => fileIn(value) !== null, show: (value) => picture(/** @type {File} */ (fileIn(value)))}

/** The file that a value has in itself. @param {any} value @returns {File|null} */
function fileIn(value) {
  if (typeof value === 'string') {
    const found = value.startsWith('data:') ? DATA_ADDRESS.exec(value) : null
    return found && fileOf('', found[1], found[2])
  }
  if (value === null || typeof value !== 'object') return null
  // The forms of MCP, of providers of models, and of resources.
  const held = [value, value.source, value.resource].find((one) => one && typeof one === 'object' && MEDIA.some((name) => typeof one[name] === 'string') && ['data', 'blob', 'base64'].some((name) => typeof one[name] === 'string' && BASE64.test(one[name])))
  if (!held) return null
  const type = held[/** @type {string} */ (MEDIA.find((name) => typeof held[name] === 'string'))]
  const name = [value.name, value.filename, held.name, held.uri].find((one) => typeof one === 'string') ?? ''
  return fileOf(name.split('/').pop() ?? '', type, held.data ?? held.blob ?? held.base64)
}

/** @param {string} name @param {string} type @param {string} written */
function fileOf(name, type, written) {
  const data = written.replace(/\s/g, '').replaceAll('-', '+').replaceAll('_', '/')
  return {name, type, data, size: Math.floor((data.replace(/=+$/, '').length * 3) / 4)}
}

/** @param {File} file */
function picture({name, type, data, size}) {
  const title = name || type
  return h('figure', {class: 'file'},
    PICTURES.has(type) ? h('img', {src: `data:${type};base64,${data}`, alt: title}) : null,
    h('figcaption', {class: 'facts'}, name ? h('code', {}, name) : null, h('span', {class: 'soft'}, `${type} · ${bytes(size)}`), saver(name || `file.${type.split('/')[1].split('+')[0]}`, () => Uint8Array.from(atob(data), (one) => one.charCodeAt(0)))))
}

/** A text that a run was given as a file. @param {string} name @param {any} content @param {string} run */
export function file(name, content, run) {
  if (typeof content !== 'string') return h('figure', {class: 'file'}, h('figcaption', {}, h('code', {}, name)), viewed(content, {run, open: 0}))
  const written = new TextEncoder().encode(content)
  return h('details', {class: 'file'}, h('summary', {}, h('code', {}, name), h('span', {class: 'soft'}, ` ${bytes(written.length)} `)), saver(name.split('/').pop() ?? name, () => written), h('pre', {class: 'source'}, text(content)))
}

/** @param {string} name @param {() => Uint8Array} content */
function saver(name, content) {
  return h('button', {class: 'quiet', 'aria-label': `Download ${name}`, onclick: () => {
    // Whatever it is, it is saved and not opened.
    const address = URL.createObjectURL(new Blob([/** @type {BlobPart} */ (content())], {type: 'application/octet-stream'}))
    h('a', {href: address, download: name}).click()
    setTimeout(() => URL.revokeObjectURL(address))
  }}, 'download')
}

/**
 * What copies a text as it is, or the JSON of any other value: with all of its digits, and with what is stored separately.
 * @param {any} value @param {string} run @param {string} [name] what is copied
 */
export function copier(value, run, name = '') {
  const button = h('button', {class: 'quiet copy', 'aria-label': `Copy ${name}`.trim(), onclick: async () => {
    try {
      const whole = value !== null && typeof value === 'object' && isBlob(value) ? await blobOf(value, run) : value
      await navigator.clipboard.writeText(typeof whole === 'string' ? whole : JSON.stringify(whole, null, 2))
      button.textContent = 'copied'
    } catch {
      button.textContent = 'cannot be copied'
    }
  }}, 'copy')
  return button
}
