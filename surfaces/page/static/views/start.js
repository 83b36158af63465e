// Starting: a run of a registered definition, of a text or a file, or like another run; its input as a form or as JSON.

import {get, Refused, send, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {hasMembers, plain, same} from '../lib/fields.js'
import {Form, tell} from '../lib/form.js'
import {exampleCards, modelNote, noModel} from './examples.js'
import {failure, field, lined, once} from './parts.js'
import {go} from './going.js'

const TYPING_MS = 300
const KEY_BYTES = 16
const FILE_BYTES_MAX = 4_000_000
/** A script with one answer for every call of a model. */
const SCRIPT = {default: {text: 'A scripted answer.'}}

export class StartView extends HTMLElement {
  /** @param {import('../lib/urls.js').Place} place */
  async show(place) {
    const like = place.query.get('like')
    const asked = JSON.stringify([place.names, like])
    // A repeated visit keeps the unsent input.
    if (asked === this.asked) return
    /** @type {string} */
    this.asked = asked
    this.build(like ?? '')
    this.definition.value = place.names[0] ?? ''
    get(['definitions']).then(({definitions}) => fill(this.known, definitions.map((/** @type {any} */ one) => h('option', {value: one.name}, one.title ?? ''))), () => {})
    if (like) await this.like(like, asked)
    else await this.takes()
    if (!this.definition.value && !like && asked === this.asked) this.definition.focus()
  }

  /** @param {string} like */
  build(like) {
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
    this.known = h('datalist', {id: 'definitions-registered'})
    this.problem = h('span', {class: 'problem', id: 'start-problem'})
    this.definition = h('input', {type: 'text', list: 'definitions-registered', placeholder: 'name of a registered definition', autocomplete: 'off', 'aria-describedby': 'start-problem', oninput: () => this.typed()})
    /** The name of the file that the text is from, whose end may say its language. */
    this.file = ''
    this.faults = h('div', {role: 'status'})
    this.source = h('textarea', {rows: '10', spellcheck: 'false', placeholder: 'the text of a definition: YAML, JSON or Markdown', oninput: () => this.typed()})
    this.chooser = h('input', {type: 'file', class: 'heard', tabindex: '-1', 'aria-hidden': 'true', accept: '.yaml,.yml,.json,.md,.markdown,.txt', onchange: () => this.read(this.chooser.files?.[0])})
    this.run = h('input', {type: 'text', autocomplete: 'off', placeholder: 'generated'})
    this.model = h('input', {type: 'text', autocomplete: 'off', placeholder: 'the default of the worker'})
    this.script = plain({type: 'object', description: 'It answers, so that no provider is asked: turns by node, and a default.'}, {label: 'Script, as JSON', required: false})
    this.more = plain({type: 'object'}, {label: 'Other members of the start message, as JSON', required: false})
    this.more.places.get('')?.input?.setAttribute('placeholder', '{"limits": {}, "tags": {}}')
    this.missing = h('div')
    this.text = h('details', {ontoggle: () => this.text.open && this.source.focus()}, h('summary', {}, 'Use a text instead'), h('div', {class: 'fields'}, field('Text', this.source), this.faults))
    this.models = h('details', {}, h('summary', {}, 'Model or script'), h('div', {class: 'fields'}, this.missing, field('Model', this.model), this.script.element,
      h('button', {type: 'button', class: 'quiet', onclick: () => this.scripted()}, 'Fill in a script with one answer for every call')))
    fill(
      this,
      h('div', {class: 'bar'}, h('h1', {}, like ? `Duplicate ${like}` : 'Start a run')),
      h('div', {class: 'sheet scrolls'}, h('form', {class: 'fields start', novalidate: true, onsubmit: (/** @type {Event} */ event) => this.start(event)},
        like ? null : h('details', {class: 'try'}, h('summary', {}, 'Try an example'), exampleCards()),
        h('div', {class: 'drop'}, field('Definition', this.definition, this.known), this.problem,
          h('p', {class: 'soft'}, h('button', {type: 'button', onclick: () => this.chooser.click()}, 'Choose a file…'), this.chooser, ' or drop it anywhere on this page')),
        this.text, this.place, this.models,
        h('details', {}, h('summary', {}, 'More'), h('div', {class: 'fields'}, field('Run id', this.run), this.more.element)),
        this.said,
        h('div', {class: 'actions begin'}, h('button', {class: 'primary'}, 'Start', h('kbd', {'aria-hidden': 'true'}, '⌘⏎'))), like ? null : modelNote())),
    )
    this.sending = once(/** @type {HTMLFormElement} */ (this.querySelector('form')))
    /** @type {{text: string, key: string}} what was sent last, and its key: the same sent again is the same run */
    this.sent = {text: '', key: ''}
    this.onkeydown = (/** @type {KeyboardEvent} */ event) => {
      if ((event.metaKey || event.ctrlKey) && event.key === 'Enter' && !event.repeat) this.querySelector('form')?.requestSubmit()
    }
    this.ondragover = (/** @type {DragEvent} */ event) => {
      if (!event.dataTransfer?.types.includes('Files')) return
      event.preventDefault()
      this.classList.add('dropping')
    }
    this.ondragleave = () => this.classList.remove('dropping')
    this.ondrop = (/** @type {DragEvent} */ event) => {
      this.classList.remove('dropping')
      const file = event.dataTransfer?.files[0]
      if (!file) return
      event.preventDefault()
      this.read(file)
    }
  }

  disconnectedCallback() {
    clearTimeout(this.typing)
  }

  /** Take the text of a file. @param {File|undefined} file */
  async read(file) {
    if (!file) return
    if (file.size > FILE_BYTES_MAX) return fill(this.said, failure(new Refused(0, {message: `${file.name} is too large: a definition has at most ${FILE_BYTES_MAX / 1_000_000} MB`})))
    this.file = file.name
    this.source.value = await file.text()
    this.source.setSelectionRange(0, 0)
    this.definition.value = ''
    this.text.open = true
    this.typed()
    await this.takes()
  }

  scripted() {
    this.script.write(SCRIPT)
    this.model.value = ''
  }

  /** What another run was started with. @param {string} run @param {string} asked */
  async like(run, asked) {
    try {
      const page = await get(['runs', run, 'events'], {after: 0, limit: 1})
      if (asked !== this.asked) return
      const {definition, start} = page.events[0].event.payload
      const {input, arguments: given, model, script, run_id: _, definition: _named, ...more} = start
      // A registered version goes on being named, so that the new run is among its runs.
      const kept = await get(['definitions', definition.hash]).catch(nobody)
      const current = kept?.name ? await get(['definitions', kept.name]).catch(nobody) : null
      if (asked !== this.asked) return
      this.definition.value = kept?.name ? (current?.hash === definition.hash ? kept.name : `${kept.name}@${definition.hash}`) : ''
      this.source.value = kept?.name ? '' : definition.source
      this.text.open = Boolean(this.source.value)
      this.model.value = model ?? ''
      this.script.write(script)
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
    this.problem.textContent = ''
    this.definition.removeAttribute('aria-invalid')
    this.typing = setTimeout(() => this.takes(), TYPING_MS)
  }

  /** What is to be started, so that an answer about something else is left aside. */
  get named() {
    return JSON.stringify([this.definition.value.trim(), this.source.value])
  }

  /** What the definition wants to be given. */
  async takes() {
    const {named} = this
    const name = this.definition.value.trim(), source = this.source.value
    const said = (/** @type {string} */ text) => {
      this.about.textContent = text
      this.about.hidden = !text
    }
    /** @type {any} */
    let about
    try {
      about = source.trim() ? await send(['definitions', 'about'], {source, file: this.file}) : name ? await get(['definitions', name, 'about']) : {}
    } catch (error) {
      if (named !== this.named) return
      // An incomplete name or text keeps the previous form.
      if (error instanceof Refused && error.status === 404) said(`No definition is registered as ${name}.`)
      else if (!source.trim()) fill(this.said, failure(error))
      else {
        const problems = error instanceof Refused ? error.problems : [], lines = lined(this.source, problems)
        fill(this.faults, lines.length && lines.length === problems.length ? h('ul', {class: 'problem'}, lines) : failure(error))
      }
      return
    }
    if (named !== this.named) return
    fill(this.faults)
    const {title, description, input = {}, arguments: given = {}} = about
    said([title, description].filter(Boolean).join(' — '))
    this.spoken = source.trim() ? about : null
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

  /** The definition as the start message names it. */
  chosen() {
    const source = this.source.value
    if (!source.trim()) return {definition: {name: this.definition.value.trim()}}
    // What is sent again has to be the same: of a text without a file it does not depend on what is known of it by now.
    if (!this.file || !this.spoken) return {definition: {source}}
    const {language, name} = this.spoken
    return {definition: {source, language}, ...(name ? {} : {name: this.file.replace(/\.[^.]*$/, '')})}
  }

  async post() {
    fill(this.said)
    if (!this.definition.value.trim() && !this.source.value.trim()) return this.miss('Name a registered definition, choose a file, or use a text.')
    if (this.file && !this.spoken) await this.takes()
    const input = this.input.read(), given = this.arguments?.read()
    /** @type {import('../lib/fields.js').Wrong[]} */
    const wrong = []
    const more = this.more.read(wrong)
    tell(this.more.places, wrong)
    if (wrong.length) /** @type {HTMLDetailsElement} */ (this.more.element.closest('details')).open = true
    /** @type {import('../lib/fields.js').Wrong[]} */
    const unscripted = []
    const script = this.script.read(unscripted)
    tell(this.script.places, unscripted)
    if (unscripted.length) this.models.open = true
    if (input.wrong.length || given?.wrong.length || wrong.length || unscripted.length) return
    try {
      const model = this.model.value.trim() || (script === undefined ? '' : 'scripted')
      const body = {
        ...more,
        ...this.chosen(),
        ...(this.run.value.trim() ? {run_id: this.run.value.trim()} : {}),
        ...(model ? {model} : {}),
        ...(script === undefined ? {} : {script}),
        ...(input.value === undefined ? {} : {input: input.value}),
        ...(given?.value === undefined ? {} : {arguments: given.value}),
      }
      const text = JSON.stringify(body)
      if (text !== this.sent.text) this.sent = {text, key: keyed()}
      const {run_id: run} = await send(['runs'], body, {}, {'Idempotency-Key': this.sent.key})
      go(to(['runs', run]))
    } catch (error) {
      this.refused(error)
    }
  }

  /** @param {unknown} error */
  refused(error) {
    const problems = error instanceof Refused ? error.problems : []
    const inside = (/** @type {string} */ member) => problems.filter((one) => one.where?.startsWith(`${member}.`)).map((one) => ({where: /** @type {string} */ (one.where).slice(member.length + 1), message: one.message}))
    const here = inside('input'), given = inside('arguments')
    if (here.length) this.input.tell(here)
    if (given.length) this.arguments?.tell(given)
    const modelless = problems.some((one) => one.code === 'model.none')
    fill(this.missing, modelless ? noModel() : null)
    fill(this.said, failure(error))
    if (!modelless) return
    this.models.open = true
    this.missing.scrollIntoView({block: 'center'})
  }

  /** @param {string} message */
  miss(message) {
    this.problem.textContent = `✕ ${message}`
    this.definition.setAttribute('aria-invalid', 'true')
    this.definition.focus()
  }
}

/** @returns {any} */
const nobody = () => null

/** A form with what was written into the one before it. @param {Form} form @param {Form|null} [before] */
function follow(form, before) {
  if (before) form.follow(before)
  return form
}

/** What nobody else is called; `randomUUID` is not there over plain HTTP. */
const keyed = () => [...crypto.getRandomValues(new Uint8Array(KEY_BYTES))].map((byte) => byte.toString(16).padStart(2, '0')).join('')

customElements.define('cb-start', StartView)
