// Forms: fields for a value as a JSON Schema describes it, and what is wrong with what stands in them, at its field.

import {fill, h} from './dom.js'

/** @typedef {{where: string, message: string}} Wrong */
/** @typedef {{element: HTMLElement, read: (wrong: Wrong[]) => any, write: (value: any) => void, places: Map<string, HTMLElement>}} Form */

const CHOICES_MAX = 6
/** More are a list that opens. */
const LINE_MAX = 120
let forms = 0

/**
 * Make a form for a schema; `where` is the place of its value.
 * @param {any} schema
 * @param {{label?: string, where?: string, required?: boolean, label_hidden?: boolean}} [how]
 * @returns {Form}
 */
export function form(schema, {label = '', where = '', required = true} = {}) {
  const places = new Map()
  const of = {schema: schema ?? {}, where, required, label: schema?.title ?? label, places, id: `form-${++forms}`}
  if (of.schema.type === 'object' && of.schema.properties) return object(of)
  const choices = choicesOf(of.schema)
  if (choices) return choose(of, choices)
  if (['string', 'number', 'integer'].includes(of.schema.type) || !Object.keys(of.schema).length) return line(of)
  return raw(of)
}

/** @param {any} schema @returns {{value: any, label: string}[]|null} */
export function choicesOf(schema) {
  if (schema?.type === 'boolean') return [{value: true, label: 'Yes'}, {value: false, label: 'No'}]
  if (Array.isArray(schema?.enum)) return schema.enum.map((/** @type {any} */ value) => ({value, label: typeof value === 'string' ? value : JSON.stringify(value)}))
  const named = schema?.oneOf ?? schema?.anyOf
  if (Array.isArray(named) && named.every((one) => one && 'const' in one)) return named.map((one) => ({value: one.const, label: String(one.title ?? one.const)}))
  return null
}

/**
 * A field with its label, and the place where its problem stands.
 * @param {any} of
 * @param {HTMLElement} input
 */
function framed({schema, where, label, required, places, id}, input) {
  const problem = h('span', {class: 'problem', id: `${id}-problem`})
  input.id = id
  input.setAttribute('aria-describedby', `${id}-told ${id}-problem`)
  places.set(where, problem)
  return h('div', {class: 'field'},
    h('label', {for: id}, label || 'Answer', required ? null : h('span', {class: 'told'}, ' — may be left out')),
    input,
    h('span', {class: 'told', id: `${id}-told`}, schema.description ?? ''), problem)
}

/** @param {any} of @returns {Form} */
function line(of) {
  const {schema, where, required, places} = of
  const number = schema.type === 'number' || schema.type === 'integer'
  const short = number || (schema.maxLength ?? Infinity) <= LINE_MAX || schema.format
  const input = short
    ? h('input', {type: 'text', inputmode: number ? 'decimal' : null, autocomplete: 'off'})
    : h('textarea', {rows: where ? '1' : '3', class: 'prose'})
  input.value = schema.default === undefined ? '' : String(schema.default)
  const read = (/** @type {Wrong[]} */ wrong) => {
    const text = input.value
    if (text.trim() === '') {
      if (required) wrong.push({where, message: 'it is needed'})
      return undefined
    }
    if (!number) return bounded(text, schema, where, wrong)
    const value = Number(text.replace(',', '.'))
    if (Number.isNaN(value)) wrong.push({where, message: 'a number is needed'})
    else if (schema.type === 'integer' && !Number.isInteger(value)) wrong.push({where, message: 'a whole number is needed'})
    else if (value < (schema.minimum ?? -Infinity)) wrong.push({where, message: `at least ${schema.minimum}`})
    else if (value > (schema.maximum ?? Infinity)) wrong.push({where, message: `at most ${schema.maximum}`})
    return value
  }
  const write = (/** @type {any} */ value) => {
    input.value = value === undefined || value === null ? '' : typeof value === 'string' ? value : JSON.stringify(value)
  }
  return {element: framed(of, input), read, write, places}
}

/** @param {string} text @param {any} schema @param {string} where @param {Wrong[]} wrong */
function bounded(text, schema, where, wrong) {
  if (text.length < (schema.minLength ?? 0)) wrong.push({where, message: `at least ${schema.minLength} characters`})
  if (text.length > (schema.maxLength ?? Infinity)) wrong.push({where, message: `at most ${schema.maxLength} characters`})
  return text
}

/** @param {any} of @param {{value: any, label: string}[]} choices @returns {Form} */
function choose(of, choices) {
  const {schema, where, required, places, id, label} = of
  if (choices.length > CHOICES_MAX) {
    const input = h('select', {}, h('option', {value: ''}, '—'), choices.map((one, i) => h('option', {value: String(i)}, one.label)))
    const write = (/** @type {any} */ value) => {
      const at = choices.findIndex((one) => JSON.stringify(one.value) === JSON.stringify(value))
      input.value = at < 0 ? '' : String(at)
    }
    write(schema.default)
    const read = (/** @type {Wrong[]} */ wrong) => {
      if (input.value === '' && required) wrong.push({where, message: 'choose one'})
      return input.value === '' ? undefined : choices[Number(input.value)].value
    }
    return {element: framed(of, input), read, write, places}
  }
  const inputs = choices.map((one, i) => h('input', {type: 'radio', name: id, value: String(i), id: i ? `${id}-${i}` : id}))
  const write = (/** @type {any} */ value) => inputs.forEach((input, i) => {
    input.checked = JSON.stringify(choices[i].value) === JSON.stringify(value)
  })
  write(schema.default)
  const problem = h('span', {class: 'problem', id: `${id}-problem`})
  places.set(where, problem)
  const element = h('fieldset', {class: 'field', 'aria-describedby': `${id}-problem`}, h('legend', {}, label || 'Answer', required ? null : h('span', {class: 'told'}, ' — may be left out')),
    h('div', {class: 'choices'}, choices.map((one, i) => h('label', {class: 'choice'}, inputs[i], one.label))),
    schema.description ? h('span', {class: 'told'}, schema.description) : null, problem)
  const read = (/** @type {Wrong[]} */ wrong) => {
    const at = inputs.findIndex((input) => input.checked)
    if (at < 0 && required) wrong.push({where, message: 'choose one'})
    return choices[at]?.value
  }
  return {element, read, write, places}
}

/** @param {any} of @returns {Form} */
function object(of) {
  const {schema, where, places, label} = of
  const needed = new Set(schema.required ?? [])
  /** @type {[string, Form][]} */
  const inner = Object.entries(schema.properties).map(([name, one]) => [name, form(one, {label: name, where: where ? `${where}.${name}` : name, required: needed.has(name)})])
  for (const [, one] of inner) one.places.forEach((place, at) => places.set(at, place))
  const fields = inner.map(([, one]) => one.element)
  const problem = h('span', {class: 'problem'})
  places.set(where, problem)
  const element = where ? h('fieldset', {class: 'field group'}, h('legend', {}, label), fields, problem) : h('div', {class: 'fields'}, fields, problem)
  return {
    element, places,
    read: (wrong) => Object.fromEntries(inner.map(([name, one]) => [name, one.read(wrong)]).filter(([, value]) => value !== undefined)),
    write: (value) => inner.forEach(([name, one]) => one.write(value?.[name])),
  }
}

/** Whatever no field fits: as JSON. @param {any} of @returns {Form} */
function raw(of) {
  const {schema, where, required, places} = of
  const input = h('textarea', {rows: '5', spellcheck: 'false'})
  const write = (/** @type {any} */ value) => {
    input.value = value === undefined ? '' : JSON.stringify(value, null, 2)
  }
  write(schema.default)
  const read = (/** @type {Wrong[]} */ wrong) => {
    if (!input.value.trim()) {
      if (required) wrong.push({where, message: 'it is needed, as JSON'})
      return undefined
    }
    try {
      return JSON.parse(input.value)
    } catch (error) {
      wrong.push({where, message: `it is no JSON: ${error instanceof Error ? error.message : error}`})
    }
  }
  return {element: framed(of, input), read, write, places}
}

/**
 * A form, and the same as JSON for whom that is easier.
 * @param {any} schema
 * @param {string} label
 */
export function either(schema, label) {
  const fields = form(schema, {label})
  const text = form({type: ['object']}, {label: `${label}, as JSON`})
  let shown = fields
  const place = h('div', {class: 'either'})
  const draw = () => fill(place, shown.element, plain ? null : h('button', {type: 'button', class: 'quiet', onclick: turn}, shown === fields ? 'as JSON' : 'as a form'))
  const plain = !Object.keys(schema ?? {}).length ? false : Boolean(choicesOf(schema))
  const turn = () => {
    const value = shown.read([])
    shown = shown === fields ? text : fields
    shown.write(value)
    draw()
  }
  draw()
  return {
    element: place,
    /** What stands there; what is wrong with it stands at its field. */
    read() {
      /** @type {Wrong[]} */
      const wrong = []
      const value = shown.read(wrong)
      tell(wrong)
      return {value, wrong}
    },
    tell: (/** @type {Wrong[]} */ wrong) => tell(wrong),
    write: (/** @type {any} */ value) => shown.write(value),
  }

  /** @param {Wrong[]} wrong */
  function tell(wrong) {
    for (const one of shown.places.values()) {
      one.textContent = ''
      field(one)?.removeAttribute('aria-invalid')
    }
    for (const {where, message} of wrong) {
      const one = shown.places.get(where) ?? shown.places.get('')
      if (!one) continue
      one.textContent = `✕ ${message}`
      field(one)?.setAttribute('aria-invalid', 'true')
    }
    const first = place.querySelector('[aria-invalid=true]')
    if (first instanceof HTMLElement) first.focus()
  }

  /** @param {HTMLElement} problem */
  function field(problem) {
    return problem.parentElement?.querySelector('input, select, textarea')
  }
}
