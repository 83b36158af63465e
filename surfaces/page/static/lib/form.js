// Forms: fields for a value, or the same value as JSON; switching between them loses nothing.

import {fill, h} from './dom.js'
import {fields as fieldsOf, hasMembers, plain, same, saysNothing} from './fields.js'

/** @typedef {import('./fields.js').Wrong} Wrong */
/** @typedef {import('./fields.js').Fields} Fields */

const UNSHOWN = 'the form has no fields for some of this value, so it stays JSON'

/** A form for a value that a schema describes, and for any where it says nothing of it. */
export class Form {
  /**
   * @param {any} schema
   * @param {string} label
   * @param {{required?: boolean, free?: boolean}} [how] `free`: there are no fields, JSON alone
   */
  constructor(schema, label, {required = true, free = false} = {}) {
    this.fields = free ? null : fieldsOf(schema, {label, required})
    this.text = plain(free ? schema : {}, {label: free ? label : `${label}, as JSON`, required})
    /** Whether there is another way to write it. */
    this.two = this.fields !== null && (hasMembers(schema) || saysNothing(schema))
    /** @type {Fields} */
    this.shown = this.fields ?? this.text
    /** Whether anything stands there that was written, by whomever. */
    this.written = false
    this.element = h('div', {class: 'either', oninput: () => { this.written = true }})
    this.draw()
  }

  draw() {
    const word = this.shown === this.fields ? 'as JSON' : 'as a form'
    fill(this.element, this.shown.element, this.two ? h('button', {type: 'button', class: 'quiet', onclick: () => this.turn()}, word) : null)
  }

  /** The one way for the other, if all that is written can be taken along. */
  turn() {
    if (!this.fields) return
    /** @type {Wrong[]} */
    const wrong = []
    const value = this.shown.read(wrong)
    const unread = wrong.filter((one) => one.unread)
    const other = this.shown === this.fields ? this.text : this.fields
    if (!unread.length) other.write(value)
    if (unread.length || (value !== undefined && !same(other.read([]), value))) {
      return this.tell(unread.length ? unread : [{where: '', message: UNSHOWN}])
    }
    this.tell([])
    this.shown = other
    this.draw()
  }

  /** What stands there; what is wrong with it stands at its field. */
  read() {
    /** @type {Wrong[]} */
    const wrong = []
    const value = this.shown.read(wrong)
    this.tell(wrong)
    return {value, wrong}
  }

  /** Have a value stand there, as JSON where the fields cannot have all of it. @param {any} value */
  write(value) {
    this.written = value !== undefined
    this.fields?.write(value)
    const fits = this.fields && (value === undefined || same(this.fields.read([]), value))
    this.shown = fits ? /** @type {Fields} */ (this.fields) : this.text
    if (!fits) this.text.write(value)
    this.draw()
  }

  /** The place where somebody writes, if they do. @returns {string|undefined} */
  get here() {
    return [...this.shown.places].find(([, {input}]) => input && input === document.activeElement)?.[0]
  }

  /** @param {string} where the place of a field; without one, the first */
  focus(where) {
    (this.shown.places.get(where)?.input ?? /** @type {HTMLElement|null} */ (this.element.querySelector('input, textarea, select')))?.focus()
  }

  /** Take along what was written into another form. @param {Form} other */
  follow(other) {
    if (!other.written) return
    /** @type {Wrong[]} */
    const wrong = []
    const value = other.shown.read(wrong)
    if (value !== undefined) this.write(value)
    const unread = wrong.filter((one) => one.unread)
    // An incomplete text may still become valid JSON.
    if (unread.length && other.shown === other.text) this.shown = this.text
    for (const {where} of unread) {
      const [from, to] = [other, this].map((one) => one.shown.places.get(where)?.input)
      if (from && to) to.value = from.value
    }
    this.written = true
    this.draw()
  }

  /** @param {Wrong[]} wrong */
  tell(wrong) {
    tell(this.shown.places, wrong)
    const first = this.element.querySelector('[aria-invalid=true]')
    if (first instanceof HTMLElement) first.focus()
  }
}

/** Say what is wrong, each where it is. @param {Fields['places']} places @param {Wrong[]} wrong */
export function tell(places, wrong) {
  for (const {problem, input} of places.values()) {
    problem.textContent = ''
    input?.removeAttribute('aria-invalid')
  }
  for (const {where, message} of wrong) {
    const place = nearest(places, where)
    if (!place) continue
    place.problem.textContent = `${place.problem.textContent ? `${place.problem.textContent}, ` : '✕ '}${message}`
    place.input?.setAttribute('aria-invalid', 'true')
  }
}

/** The place of a value, or of the nearest that it is inside of. @param {Fields['places']} places @param {string} where */
function nearest(places, where) {
  for (let at = where; at; at = at.slice(0, Math.max(at.lastIndexOf('.'), 0))) {
    const found = places.get(at)
    if (found && !(found.problem.parentElement?.closest('[hidden]'))) return found
  }
  return places.get('')
}
