// Parts that several views share: empty states, failures, dialogs.

import {fill, h} from '../lib/dom.js'
import {Refused} from '../lib/api.js'

/** @typedef {import('../lib/dom.js').Child} Child */

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
    found.problems.length ? h('ul', {}, found.problems.map((one) => h('li', {}, one.where ? h('code', {}, one.where) : null, ' ', one.message, one.expected ? h('span', {class: 'soft'}, ` — expected ${one.expected}`) : null))) : null,
    ...more,
  )
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
