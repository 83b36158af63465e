// Numbers: parse those that people write and those of JSON, without changing any value. Pure.

const WRITTEN = /^[+-]?(\d+([.,]\d*)?|[.,]\d+)(e[+-]?\d+)?$/i
const GROUPED = /^[+-]?[1-9]\d{0,2}([.,]\d{3})+$/
/** A thousand to some, and to others one with three digits behind it. */
const WHOLE = /^[+-]?\d+$/

/**
 * What somebody means by a number that they have written.
 * @param {string} text
 * @returns {{value: number}|{problem: string}}
 */
export function numberOf(text) {
  const written = text.trim()
  if (GROUPED.test(written)) {
    const parts = written.split(/[.,]/)
    return {problem: `${written} is ambiguous: write ${parts.join('')}${parts.length === 2 ? ` or ${parts.join('.')}0` : ''}`}
  }
  if (!WRITTEN.test(written)) return {problem: 'expected a number, such as 12 or 0.5'}
  return kept(written, Number(written.replace(',', '.')))
}

/** What is as it was written. @param {string} written @param {number} value @returns {{value: number}|{problem: string}} */
function kept(written, value) {
  if (!Number.isFinite(value)) return {problem: `${written} is too large for a number`}
  if (WHOLE.test(written) && !Number.isSafeInteger(value)) return {problem: `${written} has more digits than a number can hold`}
  if (value === 0 && /[1-9]/.test(written.split(/e/i)[0])) return {problem: `${written} is too small for a number`}
  return {value}
}

/**
 * Read JSON whose numbers can be kept as they are written.
 * @param {string} text
 * @throws {SyntaxError}
 */
export function valueOf(text) {
  const read = /** @type {(text: string, revive: (name: string, value: any, context?: {source?: string}) => any) => any} */ (JSON.parse)
  return read(text, (_, value, context) => {
    if (typeof value !== 'number') return value
    const found = kept(context?.source ?? String(value), value)
    if ('problem' in found) throw new SyntaxError(found.problem)
    return value
  })
}

/** Whether a text may contain an integer that a number does not hold exactly: such have at least 16 digits. */
const LONG = /\d{16}/

/**
 * Read JSON as recorded: an integer that a number does not hold exactly is kept as it is written, and written so again by
 * `JSON.stringify`, where the browser can (`JSON.rawJSON`).
 * @param {string} text
 * @returns {any}
 * @throws {SyntaxError}
 */
export function read(text) {
  const json = /** @type {{parse: (text: string, revive: (name: string, value: any, context?: {source?: string}) => any) => any, rawJSON?: (text: string) => any}} */ (JSON)
  const raw = json.rawJSON
  if (!raw || !LONG.test(text)) return JSON.parse(text)
  return json.parse(text, (_, value, context) => (typeof value === 'number' && context?.source && WHOLE.test(context.source) && !Number.isSafeInteger(value) ? raw(context.source) : value))
}

/** The digits of an integer that `read` has kept as it is written; null of any other value. @param {any} value @returns {string|null} */
export function exactly(value) {
  const json = /** @type {{isRawJSON?: (value: any) => boolean}} */ (/** @type {unknown} */ (JSON))
  return json.isRawJSON?.(value) ? value.rawJSON : null
}
