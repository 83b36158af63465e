// Texts for numbers and times. Pure, but for the time zone that was chosen. Without `Intl`, which delays every view by
// some 30 ms, unless a zone other than UTC and that of the computer was chosen.

const MINUTE = 60, HOUR = 3_600, DAY = 86_400

/**
 * A length of time: `240 ms`, `4.1 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.
 * @param {number} seconds
 */
export function duration(seconds) {
  if (!(seconds >= 0)) return ''
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`
  if (seconds < MINUTE) return `${Math.round(seconds)} s`
  const whole = Math.round(seconds)
  if (whole < HOUR) return two(Math.floor(whole / MINUTE), 'min', whole % MINUTE, 's')
  if (whole < DAY) return two(Math.floor(whole / HOUR), 'h', Math.floor((whole % HOUR) / MINUTE), 'min')
  return two(Math.floor(whole / DAY), 'd', Math.floor((whole % DAY) / HOUR), 'h')
}

/** @param {number} a @param {string} of @param {number} b @param {string} more */
const two = (a, of, b, more) => (b ? `${a} ${of} ${b} ${more}` : `${a} ${of}`)

/**
 * A count in few characters: `950`, `1.2k`, `34k`, `1.2M`.
 * @param {number} number
 */
export function count(number) {
  if (number < 1_000) return String(number)
  if (number < 10_000) return `${(Math.floor(number / 100) / 10).toFixed(1)}k`
  if (number < 1_000_000) return `${Math.floor(number / 1_000)}k`
  return `${(Math.floor(number / 100_000) / 10).toFixed(1)}M`
}

/**
 * What something has cost: `$0.0123`, `≥ $0.0123` where some of it is unknown; nothing where nothing is known.
 * @param {import('./run.js').Cost|undefined} cost
 */
export function dollars(cost) {
  return cost?.usd ? `${partial(cost) ? '≥ ' : ''}${amount(cost.usd)}` : ''
}

/**
 * The same in words, where there is room for them: `at least $0.0123`, `cost unknown`.
 * @param {import('./run.js').Cost|null|undefined} cost
 */
export function spent(cost) {
  if (!cost) return ''
  if (partial(cost) && !cost.usd) return 'cost unknown'
  return `${partial(cost) ? 'at least ' : ''}${amount(cost.usd)}`
}

/** Whether the dollars are not all of a cost. @param {import('./run.js').Cost} cost */
const partial = (cost) => cost.unknown_tokens > 0 || (cost.unmetered ?? 0) > 0

/** @param {number} usd */
function amount(usd) {
  if (usd > 0 && usd < 0.0001) return '< $0.0001'
  const digits = usd >= 1 || !usd ? 2 : 4
  return `$${grouped(usd.toFixed(digits))}`
}

/** @param {number} number */
export function bytes(number) {
  if (number < 1_024) return `${number} B`
  return number < 1_048_576 ? `${(number / 1_024).toFixed(1)} KiB` : `${(number / 1_048_576).toFixed(1)} MiB`
}

/** A number with its thousands apart: `12,345`. @param {number|string} number */
export function grouped(number) {
  const [whole, ...rest] = String(number).split('.')
  return [whole.replace(/\B(?=(\d{3})+$)/g, ','), ...rest].join('.')
}

/** @param {number} number @param {string} one @param {string} [many] */
export const some = (number, one, many = `${one}s`) => `${grouped(number)} ${number === 1 ? one : many}`

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

/** @param {number} number */
const padded = (number) => String(number).padStart(2, '0')

/** How many minutes the clocks of the zone are ahead of UTC at an instant. @type {{at: (date: Date) => number}} */
const ahead = {at: (date) => -date.getTimezoneOffset()}

/** Show times of a zone from now on: of the computer, of UTC, or of one that has a name. @param {string} name */
export function inZone(name) {
  if (!name) ahead.at = (date) => -date.getTimezoneOffset()
  else if (name === 'UTC') ahead.at = () => 0
  else {
    const clocks = new Intl.DateTimeFormat('en', {timeZone: name, hourCycle: 'h23', year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric', second: 'numeric'})
    ahead.at = (date) => {
      const part = Object.fromEntries(clocks.formatToParts(date).map(({type, value}) => [type, Number(value)]))
      return Math.round((Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second) - date.getTime()) / 60_000)
    }
  }
}

/** What the clocks of the zone show, as if it were UTC. @param {Date} date */
const shown = (date) => new Date(date.getTime() + ahead.at(date) * 60_000)

/** @param {Date} date */
const clock = (date) => `${padded(shown(date).getUTCHours())}:${padded(shown(date).getUTCMinutes())}`

/** @param {Date} date */
const exact = (date) => `${clock(date)}:${padded(date.getUTCSeconds())}`

/** @param {Date} date */
const day = (date) => `${shown(date).getUTCDate()} ${MONTHS[shown(date).getUTCMonth()]}`

/** How far the clocks of the zone are ahead of UTC: `UTC`, `UTC+1`, `UTC−3:30`. @param {Date} [date] */
export const zoneName = (date = new Date()) => zone(ahead.at(date))

/** @param {number} ahead */
function zone(ahead) {
  const minutes = Math.abs(ahead) % 60
  return ahead ? `UTC${ahead > 0 ? '+' : '−'}${Math.floor(Math.abs(ahead) / 60)}${minutes ? `:${padded(minutes)}` : ''}` : 'UTC'
}

/**
 * When something was: the time of today, else the day and the time.
 * @param {string|number} time
 * @param {number} [now]
 */
export function when(time, now = Date.now()) {
  const date = new Date(time)
  if (Number.isNaN(date.getTime())) return ''
  const today = shown(new Date(now)).toISOString().slice(0, 10) === shown(date).toISOString().slice(0, 10)
  return today ? clock(date) : `${day(date)} ${clock(date)}`
}

/** @param {string|number} time */
export const moment = (time) => exact(new Date(time))

/** @param {string|number} time */
export function instant(time) {
  const date = new Date(time)
  return Number.isNaN(date.getTime()) ? '' : `${day(date)} ${shown(date).getUTCFullYear()}, ${exact(date)} ${zoneName(date)}`
}

/**
 * What is left until an instant, in words.
 * @param {string} until
 * @param {number} [now]
 */
export function left(until, now = Date.now()) {
  const seconds = (Date.parse(until) - now) / 1000
  return seconds > 0 ? `${duration(Math.ceil(seconds))} left` : 'due now'
}

/** @param {string} text @param {number} most */
export const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text)
