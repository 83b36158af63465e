// Parts that several views share: empty states, failures, dialogs.

import {fill, h} from '../lib/dom.js'
import {Refused} from '../lib/api.js'

/** @typedef {import('../lib/dom.js').Child} Child */
/** @typedef {import('../lib/api.js').Problem} Problem */

/** How many characters of a line of a text are shown, around the place of a problem. */
const LINE_CHARS_MAX = 120

/** @param {string} title @param {...Child} more */
export const nothing = (title, ...more) => h('div', {class: 'nothing'}, h('h2', {}, title), ...more.map((one) => (typeof one === 'string' ? h('p', {}, one) : one)))

/** @type {Promise<Record<string, string>>|undefined} by code, asked for when something goes wrong */
let remedies

/** The remedy of an error, if its code has one. @param {string} code */
export function remedy(code) {
  const place = h('p', {class: 'remedy', hidden: true})
  remedies ??= fetch(new URL('../remedies.json', import.meta.url)).then((found) => found.json())
  remedies.then((known) => {
    if (!Object.hasOwn(known, code)) return
    fill(place, h('span', {class: 'soft'}, 'What to do: '), known[code])
    place.hidden = false
  }, () => { remedies = undefined })
  return place
}

/** @param {unknown} error @param {...Child} more */
export function failure(error, ...more) {
  const found = error instanceof Refused ? error : new Refused(0, {message: String(error)})
  return h(
    'div',
    // The request may succeed later.
    {class: 'failure', role: 'alert', data: found.status === 0 || found.status >= 500 ? {passing: ''} : {}},
    h('strong', {}, found.message),
    found.code ? h('code', {}, found.code) : null,
    found.remedy ? h('p', {}, found.remedy) : found.code ? remedy(found.code) : null,
    found.problems.length ? h('ul', {}, found.problems.map((one) => told(one, found.source, h('span', {class: 'soft'}, placeOf(one))))) : null,
    ...more,
  )
}

/** Where a problem is in a text. @param {Problem} problem */
const placeOf = ({line, column}) => (line ? `line ${line}${column ? `, column ${column}` : ''}` : '')

/** A problem, with the line that it is about if the text is known. @param {Problem} problem @param {string} source @param {Child} place */
function told({where, message, expected, line, column}, source, place) {
  const text = line && source ? source.split(/\r\n|\r|\n/)[line - 1] : ''
  return h('li', {}, place, ' ', where ? h('code', {}, where) : null, ' ', message, expected ? h('span', {class: 'soft'}, ` — expected ${expected}`) : null, text?.trim() ? excerpt(text, column) : null)
}

/** A line of a text, or what is around a column of it, which is marked. @param {string} text @param {number} [column] */
function excerpt(text, column = 0) {
  // Columns count characters, also those that JavaScript has as two.
  const all = [...text], at = column - 1
  const first = Math.max(0, Math.min(at - LINE_CHARS_MAX / 2, all.length - LINE_CHARS_MAX)), end = first + LINE_CHARS_MAX
  const part = (/** @type {number} */ from, /** @type {number} */ to) => all.slice(Math.max(first, from), Math.min(end, to)).join('')
  return h('pre', {class: 'excerpt'}, first ? '…' : null, column ? [part(first, at), h('mark', {}, all[at] ?? ' '), part(at + 1, end)] : part(first, end), end < all.length ? '…' : null)
}

/** The problems of a text that have a line, each with this line; a click selects it there. @param {HTMLTextAreaElement} area @param {Problem[]} problems */
export function lined(area, problems) {
  const lines = area.value.split('\n')
  return problems.filter(({line}) => line).map((one) => told(one, area.value, h('button', {type: 'button', class: 'quiet', onclick: () => {
    const before = lines.slice(0, (one.line ?? 1) - 1), begin = before.join('\n').length + (before.length ? 1 : 0)
    area.focus()
    area.setSelectionRange(begin, begin + (lines[before.length] ?? '').length)
  }}, placeOf(one))))
}

/**
 * Ask something in a dialog; resolves when it is closed.
 * @param {string} title
 * @param {Child[]} content
 * @param {string} word of what is done
 * @param {() => Promise<void>} act
 * @param {{dangerous?: boolean, leave?: string}} [how] `leave`: the word of the button that does nothing
 */
export function dialog(title, content, word, act, {dangerous = false, leave = 'Cancel'} = {}) {
  const said = h('div')
  const does = h('button', {type: 'submit', class: dangerous ? 'danger' : 'primary'}, word)
  const form = h('form', {method: 'dialog', onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault()
    does.disabled = true
    try {
      await act()
      element.close()
    } catch (error) {
      said.replaceChildren(failure(error))
    } finally {
      does.disabled = false
    }
  }}, h('h2', {id: 'dialog-title'}, title), content, said, h('div', {class: 'actions'}, h('button', {type: 'button', onclick: () => element.close()}, leave), does))
  const element = h('dialog', {'aria-labelledby': 'dialog-title', onclose: () => element.remove()}, form)
  document.body.append(element)
  element.showModal()
  return element
}

/**
 * Do one thing at a time for a form: while it is being done, its buttons say so, and neither they nor keys do another.
 * They keep the focus, which a disabled one would lose.
 * @param {HTMLFormElement} form
 */
export function once(form) {
  const sending = {
    busy: false,
    /** @param {() => Promise<void>} does */
    async act(does) {
      if (sending.busy) return
      const tell = (/** @type {boolean} */ busy) => {
        sending.busy = busy
        for (const button of form.querySelectorAll('.actions button')) button.setAttribute('aria-disabled', String(busy))
      }
      tell(true)
      try {
        await does()
      } finally {
        tell(false)
      }
    },
  }
  return sending
}

/** A label with its field. @param {string} name @param {HTMLElement} input @param {...Child} more */
export const field = (name, input, ...more) => h('label', {class: 'field'}, h('span', {}, name), input, ...more)
