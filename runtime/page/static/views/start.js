// Starting: a run of a definition that is registered, of a text, or like another run; its input as a form or as JSON.

import {get, Refused, send, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {either} from '../lib/form.js'
import {failure, field, once} from './parts.js'
import {go} from './going.js'

const TYPING_MS = 300
const KEY_BYTES = 16

export class StartView extends HTMLElement {
  /** @param {import('../lib/urls.js').Place} place */
  async show(place) {
    const like = place.query.get('like')
    this.place = h('div')
    this.said = h('div')
    /** @type {any} */
    this.base = {}
    const known = h('datalist', {id: 'definitions-registered'})
    this.definition = h('input', {type: 'text', list: 'definitions-registered', placeholder: 'the name of a registered one', autocomplete: 'off', oninput: () => this.typed()})
    this.source = h('textarea', {rows: '8', spellcheck: 'false', placeholder: 'or its whole text'})
    this.run = h('input', {type: 'text', autocomplete: 'off', placeholder: 'given by itself'})
    this.model = h('input', {type: 'text', autocomplete: 'off', placeholder: 'the default of the worker'})
    this.more = h('textarea', {rows: '5', spellcheck: 'false', placeholder: '{"limits": {}, "script": {}}'})
    this.definition.value = place.names[0] ?? ''
    const source = h('details', {}, h('summary', {}, 'A text instead'), field('Definition', this.source))
    fill(
      this,
      h('div', {class: 'bar'}, h('h1', {}, like ? `Start like ${like}` : 'Start a run')),
      h('div', {class: 'sheet scrolls'}, h('form', {class: 'fields start', novalidate: true, onsubmit: (/** @type {Event} */ event) => this.start(event)},
        field('Definition', this.definition, known), source, this.place,
        h('details', {}, h('summary', {}, 'More'), h('div', {class: 'fields'}, field('Run id', this.run), field('Model', this.model), field('Anything else of a start message, as JSON', this.more))),
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
      await this.like(like)
      source.open = Boolean(this.source.value)
    } else await this.takes()
    if (!this.definition.value && !like) this.definition.focus()
  }

  /** What another run was started with. @param {string} run */
  async like(run) {
    try {
      const page = await get(['runs', run, 'events'], {after: 0, limit: 1})
      const {definition, start} = page.events[0].event.payload
      const {input, arguments: given, model, run_id: _, definition: named, ...more} = start
      this.definition.value = named?.name ?? ''
      this.source.value = named?.name ? '' : definition.source
      this.model.value = model ?? ''
      this.more.value = Object.keys(more).length ? JSON.stringify(more, null, 2) : ''
      await this.takes()
      this.input?.write(input)
      this.arguments?.write(given)
    } catch (error) {
      fill(this.said, failure(error))
    }
  }

  typed() {
    clearTimeout(this.typing)
    this.typing = setTimeout(() => this.takes(), TYPING_MS)
  }

  /** What the definition wants to be given. */
  async takes() {
    const name = this.definition.value.trim()
    /** @type {any} */
    let about = {}
    if (name) {
      try {
        about = await get(['definitions', name, 'about'])
      } catch (error) {
        if (!(error instanceof Refused) || error.status !== 404) fill(this.said, failure(error))
      }
    }
    if (name !== this.definition.value.trim()) return
    const schema = about.input ?? {}
    this.input = either(Object.keys(schema.properties ?? {}).length ? schema : {type: 'any', title: 'Input, as JSON'}, 'Input')
    this.arguments = Object.keys(about.arguments?.properties ?? {}).length ? either(about.arguments, 'Arguments') : null
    this.free = !Object.keys(schema.properties ?? {}).length
    fill(this.place, about.title ? h('p', {class: 'soft'}, [about.title, about.description].filter(Boolean).join(' — ')) : null, h('div', {class: 'fields'}, this.input.element, this.arguments?.element ?? null))
  }

  /** @param {Event} event */
  start(event) {
    event.preventDefault()
    this.sending.act(() => this.post())
  }

  async post() {
    fill(this.said)
    const input = this.free && !/** @type {HTMLTextAreaElement|null} */ (this.querySelector('.either textarea'))?.value.trim() ? {value: undefined, wrong: []} : this.input?.read()
    const given = this.arguments?.read()
    if (input?.wrong.length || given?.wrong.length) return
    try {
      const more = this.more.value.trim() ? JSON.parse(this.more.value) : {}
      const source = this.source.value.trim()
      const body = {
        ...more,
        definition: source ? {source: this.source.value} : {name: this.definition.value.trim()},
        ...(this.run.value.trim() ? {run_id: this.run.value.trim()} : {}),
        ...(this.model.value.trim() ? {model: this.model.value.trim()} : {}),
        ...(input?.value === undefined ? {} : {input: input.value}),
        ...(given?.value === undefined ? {} : {arguments: given.value}),
      }
      const text = JSON.stringify(body)
      if (text !== this.sent.text) this.sent = {text, key: keyed()}
      const {run_id: run} = await send(['runs'], body, {}, {'Idempotency-Key': this.sent.key})
      go(to(['runs', run]))
    } catch (error) {
      const problems = error instanceof Refused ? error.problems : []
      const here = problems.filter((one) => one.where?.startsWith('input.')).map((one) => ({where: /** @type {string} */ (one.where).slice('input.'.length), message: one.message}))
      if (here.length && !this.free) this.input?.tell(here)
      fill(this.said, failure(error))
    }
  }
}

/** What nobody else is called; `randomUUID` is not there over plain HTTP. */
const keyed = () => [...crypto.getRandomValues(new Uint8Array(KEY_BYTES))].map((byte) => byte.toString(16).padStart(2, '0')).join('')

customElements.define('cb-start', StartView)
