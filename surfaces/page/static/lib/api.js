// The API: requests to the server that served the page.

import {read} from './numbers.js'
import {address} from './urls.js'

/** The tenant that is served here. */
export const tenant = document.querySelector('meta[name="callboard-tenant"]')?.getAttribute('content') ?? ''

/** Whether there is only something to look at. */
export const readsOnly = document.querySelector('meta[name="callboard-may"]')?.getAttribute('content') === 'read'

/** @typedef {{code: string, message: string, where?: string, expected?: string, line?: number, column?: number}} Problem `line`, `column`: from 1, in the text that was sent */

/** What the server refuses, or cannot do. */
export class Refused extends Error {
  /** @param {number} status @param {{code?: string, message?: string, remedy?: string, problems?: Problem[]}} error @param {string} [source] the text that the lines of problems are those of */
  constructor(status, error, source = '') {
    super(error.message ?? `the server answers ${status}`)
    this.status = status
    this.code = error.code ?? ''
    this.remedy = error.remedy ?? ''
    this.problems = error.problems ?? []
    this.source = source
  }
}

/** @param {...string} parts */
export const path = (...parts) => `/api/${[tenant, ...parts].map(encodeURIComponent).join('/')}`

/** The address of a view. @param {string[]} parts @param {Record<string, any>} [query] */
export const to = (parts, query) => address(tenant, parts, query)

/**
 * @param {string[]} parts
 * @param {Record<string, string|number|null|undefined>} [query]
 * @param {AbortSignal} [signal]
 */
export async function get(parts, query = {}, signal) {
  const asked = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') asked.set(name, String(value))
  }
  const text = asked.toString()
  return await answered(fetch(`${path(...parts)}${text ? `?${text}` : ''}`, {signal, credentials: 'same-origin'}))
}

/**
 * @param {string[]} parts
 * @param {any} [body]
 * @param {Record<string, string|number>} [query]
 * @param {Record<string, string>} [more] headers
 */
export async function send(parts, body = {}, query = {}, more = {}) {
  const text = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)])).toString()
  return await answered(post(`${path(...parts)}${text ? `?${text}` : ''}`, body, more), body.source ?? (body.definition ?? body.start?.definition)?.source)
}

/** @param {string} url @param {unknown} body @param {Record<string, string>} [more] headers */
export function post(url, body, more = {}) {
  const headers = {...more, 'Content-Type': 'application/json', 'Callboard-Page': '1'}
  return fetch(url, {method: 'POST', headers, credentials: 'same-origin', body: JSON.stringify(body)})
}

/** @param {Promise<Response>} asked @param {string} [source] the text of a definition that was sent */
async function answered(asked, source) {
  let response
  try {
    response = await asked
  } catch (error) {
    if (error instanceof DOMException) throw error
    throw new Refused(0, {code: 'page.offline', message: 'the server does not answer', remedy: 'The page asks again as soon as the server answers; reload to ask now.'})
  }
  /** @type {any} */
  let value
  try {
    value = read(await response.text())
  } catch (error) {
    if (error instanceof DOMException) throw error
    value = {}
  }
  if (response.ok) return value
  if (response.status === 401) document.dispatchEvent(new CustomEvent('unauthorized'))
  throw new Refused(response.status, value.error ?? {}, source)
}
