// Fields: the form fields of a value with a JSON Schema. Each returns its value and reports the problems.

import {h} from './dom.js'
import {numberOf, valueOf} from './numbers.js'

/** @typedef {{where: string, message: string, unread?: boolean}} Wrong `unread`: what somebody has written there is no value at all */
/** @typedef {HTMLInputElement|HTMLTextAreaElement|HTMLSelectElement} Input */
/** @typedef {{problem: HTMLElement, input: Input|null}} Place where a problem is told, and the field that has it */
/** @typedef {{element: HTMLElement, read: (wrong: Wrong[]) => any, write: (value: any) => void, places: Map<string, Place>}} Fields */
/** @typedef {{schema: any, where: string, required: boolean, label: string, places: Map<string, Place>, id: string}} Of */

const CHOICES_MAX = 6
/** More are a list that opens. */
const LINE_MAX = 120
let made = 0

/**
 * Make the fields of a schema; `where` is the place of its value.
 * @param {any} schema
 * @param {{label?: string, where?: string, required?: boolean}} [how]
 * @returns {Fields}
 */
export function fields(schema, how = {}) {
  const of = described(schema, how)
  if (hasMembers(of.schema)) return object(of)
  const choices = choicesOf(of.schema)
  if (choices) return choices.length > CHOICES_MAX ? list(of, choices) : choose(of, choices)
  return ['string', 'number', 'integer'].includes(of.schema.type) || saysNothing(of.schema) ? line(of) : json(of)
}

/** Whether a schema is of an object whose members it names. @param {any} schema @returns {boolean} */
export const hasMembers = (schema) => schema?.type === 'object' && Object.keys(schema.properties ?? {}).length > 0

/** @param {any} schema */
export const saysNothing = (schema) => !Object.keys(schema ?? {}).length

/** The one field of a value that is written as JSON. @param {any} schema @param {{label?: string, where?: string, required?: boolean}} [how] */
export const plain = (schema, how = {}) => json(described(schema, how))

/** @param {any} schema @param {{label?: string, where?: string, required?: boolean}} how @returns {Of} */
function described(schema, {label = '', where = '', required = true}) {
  const known = typeof schema === 'object' && schema !== null ? schema : {}
  return {schema: known, where, required, label: known.title ?? label, places: new Map(), id: `form-${++made}`}
}

/** @param {any} schema @returns {{value: any, label: string}[]|null} */
export function choicesOf(schema) {
  if (schema?.type === 'boolean') return [{value: true, label: 'Yes'}, {value: false, label: 'No'}]
  if (Array.isArray(schema?.enum)) return schema.enum.map((/** @type {any} */ value) => ({value, label: typeof value === 'string' ? value : JSON.stringify(value)}))
  const named = schema?.oneOf ?? schema?.anyOf
  if (Array.isArray(named) && named.every((one) => one && 'const' in one)) return named.map((one) => ({value: one.const, label: String(one.title ?? one.const)}))
  return null
}

/** Whether two values are the same JSON. @param {any} one @param {any} other @returns {boolean} */
export function same(one, other) {
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null) return one === other
  const names = Object.keys(one)
  return Array.isArray(one) === Array.isArray(other) && names.length === Object.keys(other).length
    && names.every((name) => Object.hasOwn(other, name) && same(one[name], other[name]))
}

/** @param {Of} of */
const optional = ({required}) => (required ? null : h('span', {class: 'told'}, ' — optional'))

/**
 * A field with its label, and the place where its problem stands.
 * @param {Of} of
 * @param {Input} input
 */
function framed(of, input) {
  const {schema, where, label, places, id} = of
  const problem = h('span', {class: 'problem', id: `${id}-problem`})
  input.id = id
  input.setAttribute('aria-describedby', `${id}-told ${id}-problem`)
  places.set(where, {problem, input})
  return h('div', {class: 'field'},
    h('label', {for: id}, label || 'Answer', optional(of)),
    input,
    h('span', {class: 'told', id: `${id}-told`}, schema.description ?? ''), problem)
}

/** @param {Of} of @returns {Fields} */
function line(of) {
  const {schema, where, required, places} = of
  const number = schema.type === 'number' || schema.type === 'integer'
  const short = number || (schema.maxLength ?? Infinity) <= LINE_MAX || schema.format
  const input = short
    ? h('input', {type: 'text', inputmode: number ? 'decimal' : null, autocomplete: 'off'})
    : h('textarea', {rows: where ? '1' : '3', class: 'prose'})
  /** What was put here, and how it stands here: as long as nobody touches it, it is that and nothing else. @type {{text: string, value: any}} */
  let put
  const write = (/** @type {any} */ value) => {
    const inner = typeof value === 'object' && value !== null
    input.value = value === undefined || value === null ? '' : inner ? JSON.stringify(value) : String(value)
    put = {text: input.value, value: inner ? undefined : value}
  }
  write(schema.default)
  const read = (/** @type {Wrong[]} */ wrong) => {
    const text = input.value
    if (put.value !== undefined && text === put.text) return put.value
    if (text.trim() === '') {
      if (required) wrong.push({where, message: 'required'})
      return undefined
    }
    const found = number ? numberOf(text) : {value: text}
    const problem = 'problem' in found ? found.problem : bounded(found.value, schema)
    if (problem) wrong.push({where, message: problem, unread: 'problem' in found})
    return 'value' in found ? found.value : undefined
  }
  return {element: framed(of, input), read, write, places}
}

/** What is wrong with a value of a schema, if anything. @param {string|number} value @param {any} schema */
function bounded(value, schema) {
  if (typeof value === 'number') {
    if (schema.type === 'integer' && !Number.isInteger(value)) return 'expected a whole number'
    if (value < (schema.minimum ?? -Infinity)) return `at least ${schema.minimum}`
    return value > (schema.maximum ?? Infinity) ? `at most ${schema.maximum}` : ''
  }
  const {length} = [...value]
  if (length < (schema.minLength ?? 0)) return `at least ${schema.minLength} characters`
  return length > (schema.maxLength ?? Infinity) ? `at most ${schema.maxLength} characters` : ''
}

/** Many choices. @param {Of} of @param {{value: any, label: string}[]} choices @returns {Fields} */
function list(of, choices) {
  const {schema, where, required, places} = of
  const input = h('select', {}, h('option', {value: ''}, '—'), choices.map((one, i) => h('option', {value: String(i)}, one.label)))
  const write = (/** @type {any} */ value) => {
    const at = choices.findIndex((one) => same(one.value, value))
    input.value = at < 0 ? '' : String(at)
  }
  write(schema.default)
  const read = (/** @type {Wrong[]} */ wrong) => {
    if (input.value === '' && required) wrong.push({where, message: 'choose one'})
    return input.value === '' ? undefined : choices[Number(input.value)].value
  }
  return {element: framed(of, input), read, write, places}
}

/** Few choices; what may be left out may be left out again. @param {Of} of @param {{value: any, label: string}[]} known @returns {Fields} */
function choose(of, known) {
  const {schema, where, required, places, id, label} = of
  const choices = required ? known : [...known, {value: undefined, label: 'none'}]
  const inputs = choices.map((_, i) => h('input', {type: 'radio', name: id, value: String(i), id: i ? `${id}-${i}` : id}))
  const write = (/** @type {any} */ value) => inputs.forEach((input, i) => {
    input.checked = same(choices[i].value, value)
  })
  write(schema.default)
  const problem = h('span', {class: 'problem', id: `${id}-problem`})
  places.set(where, {problem, input: inputs[0]})
  const element = h('fieldset', {class: 'field', 'aria-describedby': `${id}-problem`}, h('legend', {}, label || 'Answer', optional(of)),
    h('div', {class: 'choices'}, choices.map((one, i) => h('label', {class: `choice${one.value === undefined ? ' soft' : ''}`}, inputs[i], one.label))),
    schema.description ? h('span', {class: 'told'}, schema.description) : null, problem)
  const read = (/** @type {Wrong[]} */ wrong) => {
    const at = inputs.findIndex((input) => input.checked)
    if (at < 0 && required) wrong.push({where, message: 'choose one'})
    return choices[at]?.value
  }
  return {element, read, write, places}
}

/** The members of an object; those that no field is for stay as they are. @param {Of} of @returns {Fields} */
function object(of) {
  const {schema, where, places, label, required, id} = of
  const needed = new Set(schema.required ?? [])
  /** @type {[string, Fields][]} */
  const inner = Object.entries(schema.properties).map(([name, one]) => [name, fields(one, {label: name, where: where ? `${where}.${name}` : name, required: needed.has(name)})])
  for (const [, one] of inner) one.places.forEach((place, at) => places.set(at, place))
  const members = h('div', {class: 'fields'}, inner.map(([, one]) => one.element))
  // An optional object is given as a whole or not at all, and only the person can decide which.
  const given = where && !required ? h('input', {type: 'checkbox', id, onchange: () => drawn()}) : null
  const drawn = () => {
    members.hidden = given !== null && !given.checked
  }
  const problem = h('span', {class: 'problem'})
  places.set(where, {problem, input: given})
  const title = given ? h('label', {class: 'check'}, given, h('span', {}, label, optional(of))) : label
  const told = schema.description ? h('span', {class: 'told'}, schema.description) : null
  const more = h('p', {class: 'told'})
  const element = where ? h('fieldset', {class: 'field group'}, h('legend', {}, title), told, members, more, problem) : h('div', {class: 'fields'}, members, more, problem)
  /** @type {Record<string, any>} */
  let others = {}
  const write = (/** @type {any} */ value) => {
    const known = typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {}
    others = Object.fromEntries(Object.entries(known).filter(([name]) => !Object.hasOwn(schema.properties, name)))
    more.textContent = Object.keys(others).length ? `Besides, as JSON: ${Object.keys(others).join(', ')}` : ''
    if (given) given.checked = value !== undefined
    for (const [name, one] of inner) one.write(Object.hasOwn(known, name) ? known[name] : undefined)
    drawn()
  }
  if (schema.default === undefined) drawn()
  else write(schema.default)
  const read = (/** @type {Wrong[]} */ wrong) => {
    if (given && !given.checked) return undefined
    return {...others, ...Object.fromEntries(inner.map(([name, one]) => [name, one.read(wrong)]).filter(([, value]) => value !== undefined))}
  }
  return {element, places, read, write}
}

/** Whatever no field fits. @param {Of} of @returns {Fields} */
function json(of) {
  const {schema, where, required, places} = of
  const input = h('textarea', {rows: '5', spellcheck: 'false'})
  const write = (/** @type {any} */ value) => {
    input.value = value === undefined ? '' : JSON.stringify(value, null, 2)
  }
  write(schema.default)
  const read = (/** @type {Wrong[]} */ wrong) => {
    if (!input.value.trim()) {
      if (required) wrong.push({where, message: 'required, as JSON'})
      return undefined
    }
    try {
      const value = valueOf(input.value)
      if (!isA(schema.type, value)) wrong.push({where, message: `${[schema.type].flat().map((one) => KINDS[one] ?? one).join(' or ')} is needed`})
      return value
    } catch (error) {
      wrong.push({where, message: `not valid JSON: ${error instanceof Error ? error.message : error}`, unread: true})
    }
  }
  return {element: framed(of, input), read, write, places}
}

/** @type {Record<string, string>} */
const KINDS = {object: 'an object', array: 'a list', string: 'a text', number: 'a number', integer: 'a whole number', boolean: 'true or false', null: 'null'}

/** Whether a value is of a type that a schema names. @param {any} named @param {any} value @returns {boolean} */
function isA(named, value) {
  if (Array.isArray(named)) return named.some((one) => isA(one, value))
  switch (named) {
    case 'object': return typeof value === 'object' && value !== null && !Array.isArray(value)
    case 'array': return Array.isArray(value)
    case 'null': return value === null
    case 'integer': return Number.isInteger(value)
    case 'string': case 'number': case 'boolean': return typeof value === named
    default: return true
  }
}
