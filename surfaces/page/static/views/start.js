// Starting: a run of a registered definition, of a text, or like another run; its input as a form or as JSON.

import {get, Refused, send, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {hasMembers, plain, same} from '../lib/fields.js'
import {Form, tell} from '../lib/form.js'
import {failure, field, once} from './parts.js'
import {go} from './going.js'

const TYPING_MS = 300
const KEY_BYTES = 16

export class StartView extends HTMLElement {
  /** @param {import('../lib/urls.js').Place} place */
  async show(place) {
    const like = place.query.get('like')
    const asked = JSON.stringify([place.names, like])
    // A repeated visit keeps the unsent input.
    if (asked === this.asked) return
    /** @type {string} */
    this.asked = asked
    this.place = h('div', {class: 'fields'})
    this.about = h('p', {class: 'soft', hidden: true})
    this.forms = h('div', {class: 'fields'})
    fill(this.place, this.about, this.forms)
    this.input = this.inputs({})
    /** @type {Form|null} */
    this.arguments = null
    /** @type {any} what the definition wants, as far as it is known */
    this.wanted = {}
    fill(this.forms, this.input.element)
    this.said = h('div')
    const known = h('datalist', {id: 'definitions-registered'})
    this.definition = h('input', {type: 'text', list: 'definitions-registered', placeholder: 'name of a registered definition', autocomplete: 'off', oninput: () => this.typed()})
    this.source = h('textarea', {rows: '8', spellcheck: 'false', placeholder: 'the text of a definition'})
    this.run = h('input', {type: 'text', autocomplete: 'off', placeholder: 'generated'})
    this.model = h('input', {type: 'text', autocomplete: 'off', placeholder: 'the default of the worker'})
    this.more = plain({type: 'object'}, {label: 'Other members of the start message, as JSON', required: false})
    this.more.places.get('')?.input?.setAttribute('placeholder', '{"limits": {}, "script": {}}')
    this.definition.value = place.names[0] ?? ''
    const source = h('details', {}, h('summary', {}, 'Use a text instead'), field('Definition', this.source))
    fill(
      this,
      h('div', {class: 'bar'}, h('h1', {}, like ? `Start like ${like}` : 'Start a run')),
      h('div', {class: 'sheet scrolls'}, h('form', {class: 'fields start', novalidate: true, onsubmit: (/** @type {Event} */ event) => this.start(event)},
        field('Definition', this.definition, known), source, this.place,
        h('details', {}, h('summary', {}, 'More'), h('div', {class: 'fields'}, field('Run id', this.run), field('Model', this.model), this.more.element)),
        this.said,
        h('div', {class: 'actions begin'}, h('button', {class: 'primary'}, 'Start', h('kbd', {'aria-hidden': 'true'}, '⌘⏎'))))),
    )
    this.sending = once(/** @type {HTMLFormElement} */ (this.querySelector('form')))
    /** @type {{text: string, key: string}} what was sent last, and its key: the same sent again is the same run */
    this.sent = {text: '', key: ''}
    this.onkeydown = (/** @type {KeyboardEvent} */ event) => {
      if ((event.metaKey || event.ctrlKey) && event.key === 'Enter' && !event.repeat) this.querySelector('form')?.requestSubmit()
    }
    get(['definitions']).then(({definitions}) => fill(known, definitions.map((/** @type {any} */ one) => h('option', {value: one.name}, one.title ?? ''))), () => {})
    if (like) {
      await this.like(like, asked)
      source.open = Boolean(this.source.value)
    } else await this.takes()
    if (!this.definition.value && !like && asked === this.asked) this.definition.focus()
  }

  disconnectedCallback() {
    clearTimeout(this.typing)
  }

  /** What another run was started with. @param {string} run @param {string} asked */
  async like(run, asked) {
    try {
      const page = await get(['runs', run, 'events'], {after: 0, limit: 1})
      if (asked !== this.asked) return
      const {definition, start} = page.events[0].event.payload
      const {input, arguments: given, model, run_id: _, definition: named, ...more} = start
      this.definition.value = named?.name ?? ''
      this.source.value = named?.name ? '' : definition.source
      this.model.value = model ?? ''
      this.more.write(Object.keys(more).length ? more : undefined)
      await this.takes()
      if (asked !== this.asked) return
      this.input.write(input)
      this.arguments?.write(given)
    } catch (error) {
      fill(this.said, failure(error))
    }
  }

  typed() {
    clearTimeout(this.typing)
    fill(this.said)
    this.typing = setTimeout(() => this.takes(), TYPING_MS)
  }

  /** What the definition wants to be given. */
  async takes() {
    const name = this.definition.value.trim()
    const said = (/** @type {string} */ text) => {
      this.about.textContent = text
      this.about.hidden = !text
    }
    /** @type {any} */
    let about
    try {
      about = name ? await get(['definitions', name, 'about']) : {}
    } catch (error) {
      if (name !== this.definition.value.trim()) return
      // An incomplete name keeps the previous form.
      if (error instanceof Refused && error.status === 404) said(`No definition is registered as ${name}.`)
      else fill(this.said, failure(error))
      return
    }
    if (name !== this.definition.value.trim()) return
    const {title, description, input = {}, arguments: given = {}} = about
    said([title, description].filter(Boolean).join(' — '))
    if (same([input, given], [this.wanted.input ?? {}, this.wanted.arguments ?? {}])) return
    this.wanted = about
    const {here} = this.input
    this.input = this.inputs(input, this.input)
    this.arguments = hasMembers(given) ? follow(new Form(given, 'Arguments'), this.arguments) : null
    fill(this.forms, this.input.element, this.arguments?.element ?? null)
    if (here !== undefined) this.input.focus(here)
  }

  /** The form of an input; without declared members it is whatever somebody gives, or nothing. @param {any} schema @param {Form} [before] */
  inputs(schema, before) {
    const free = !hasMembers(schema)
    return follow(new Form(free ? {title: 'Input, as JSON'} : schema, 'Input', {required: !free, free}), before)
  }

  /** @param {Event} event */
  start(event) {
    event.preventDefault()
    this.sending.act(() => this.post())
  }

  async post() {
    fill(this.said)
    const input = this.input.read(), given = this.arguments?.read()
    /** @type {import('../lib/fields.js').Wrong[]} */
    const wrong = []
    const more = this.more.read(wrong)
    tell(this.more.places, wrong)
    if (wrong.length) /** @type {HTMLDetailsElement} */ (this.more.element.closest('details')).open = true
    if (input.wrong.length || given?.wrong.length || wrong.length) return
    try {
      const source = this.source.value.trim()
      const body = {
        ...more,
        definition: source ? {source: this.source.value} : {name: this.definition.value.trim()},
        ...(this.run.value.trim() ? {run_id: this.run.value.trim()} : {}),
        ...(this.model.value.trim() ? {model: this.model.value.trim()} : {}),
        ...(input.value === undefined ? {} : {input: input.value}),
        ...(given?.value === undefined ? {} : {arguments: given.value}),
      }
      const text = JSON.stringify(body)
      if (text !== this.sent.text) this.sent = {text, key: keyed()}
      const {run_id: run} = await send(['runs'], body, {}, {'Idempotency-Key': this.sent.key})
      go(to(['runs', run]))
    } catch (error) {
      const problems = error instanceof Refused ? error.problems : []
      const here = problems.filter((one) => one.where?.startsWith('input.')).map((one) => ({where: /** @type {string} */ (one.where).slice('input.'.length), message: one.message}))
      if (here.length) this.input.tell(here)
      fill(this.said, failure(error))
    }
  }
}

/** A form with what was written into the one before it. @param {Form} form @param {Form|null} [before] */
function follow(form, before) {
  if (before) form.follow(before)
  return form
}

/** What nobody else is called; `randomUUID` is not there over plain HTTP. */
const keyed = () => [...crypto.getRandomValues(new Uint8Array(KEY_BYTES))].map((byte) => byte.toString(16).padStart(2, '0')).join('')

customElements.define('cb-start', StartView)
