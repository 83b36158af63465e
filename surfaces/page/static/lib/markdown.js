// Markdown: the tree that the server has read from a text, as elements. Markup is never parsed here.

import {send} from './api.js'
import {h} from './dom.js'

/** @typedef {string|[string, Record<string, any>, any[]]} Node a text, or the name of an element, its attributes and its nodes */

/** Characters that the server reads at once. */
export const PIECE_CHARS = 16_384
const KEPT_MAX = 100
/** Texts of which the tree is kept. */
const ELEMENTS = new Set(['p', 'blockquote', 'ul', 'ol', 'li', 'thead', 'tbody', 'tr', 'em', 'strong', 's', 'code', 'br', 'hr', 'span'])
const ALIGN = new Set(['left', 'center', 'right'])
const ADDRESS = /^(https?|mailto):/i
/** What plain words do not contain. */
const MARKS = /[*_`#[\]|>~\\&<]|\n|:\/\/|^\s*([-+]|\d+[.)])\s/

/** Whether a text reads otherwise as Markdown than as it is. @param {string} text */
export const isMarked = (text) => MARKS.test(text)

/** @type {Map<string, Promise<{nodes: Node[]}>>} */
const kept = new Map()

/**
 * The elements of a text of at most `PIECE_CHARS` characters.
 * @param {string} text
 * @returns {Promise<HTMLElement>}
 */
export async function rendered(text) {
  let asked = kept.get(text)
  if (!asked) {
    asked = /** @type {Promise<{nodes: Node[]}>} */ (send(['markdown'], {text}))
    if (kept.size >= KEPT_MAX) kept.delete(/** @type {string} */ (kept.keys().next().value))
    kept.set(text, asked)
    asked.catch(() => kept.delete(text))
  }
  return h('div', {class: 'markdown', dir: 'auto'}, (await asked).nodes.map(built))
}

/** @param {Node} node @returns {string|HTMLElement} */
function built(node) {
  if (typeof node === 'string') return node
  const [name, given, inner] = node
  const nodes = inner.map(built)
  switch (name) {
    // The headings of a text are not those of the page.
    case 'heading': return h('p', {class: `heading level-${Number(given.level)}`}, nodes)
    case 'a': return ADDRESS.test(given.href) ? h('a', {href: given.href, rel: 'noopener noreferrer', target: '_blank'}, nodes) : h('span', {}, nodes)
    case 'pre': return h('pre', {class: 'source', tabindex: '0', 'aria-label': given.language ? `Code, ${given.language}` : 'Code', role: 'group'}, nodes)
    case 'table': return h('div', {class: 'wide', tabindex: '0', role: 'group', 'aria-label': 'Table'}, h('table', {}, nodes))
    case 'th':
    case 'td': return h(name, {class: ALIGN.has(given.align) ? `align-${given.align}` : null}, nodes)
    case 'ol': return h('ol', {start: Number.isSafeInteger(given.start) ? given.start : null}, nodes)
    default: return ELEMENTS.has(name) ? h(/** @type {keyof HTMLElementTagNameMap} */ (name), {}, nodes) : h('span', {}, nodes)
  }
}

/** Where a text is cut so that its first part can be read at once: behind a paragraph or a line, if it has any. @param {string} text */
export function cut(text) {
  if (text.length <= PIECE_CHARS) return text.length
  const least = PIECE_CHARS / 2
  for (const end of ['\n\n', '\n', ' ']) {
    const at = text.lastIndexOf(end, PIECE_CHARS - end.length)
    if (at >= least) return at + end.length
  }
  // A character of two parts stays whole.
  const high = text.charCodeAt(PIECE_CHARS - 1)
  return high >= 0xd800 && high < 0xdc00 ? PIECE_CHARS - 1 : PIECE_CHARS
}
