// The scale of a timeline: instants as positions between 0 and 1, with long idle stretches folded. Pure.

/** @typedef {import('./run.js').Run} Run */
/** @typedef {{place: (time: number) => number, folds: {at: number, seconds: number}[], marks: {at: number, seconds: number}[], from: number, until: number}} Scale */

const LONG = 10
/** A gap in which a run only waits is folded above so many times the median gap. */
const FOLDED_SHARE = 0.04, FOLDED_SHARE_MAX = 0.25
/** How wide a folded gap is, beside all that is not: together not more than the second. */
const SHORT_MS = 2_000
/** A shorter gap is never folded. */
const SAMPLED_MAX = 2_000
const MARKS = 6
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400]

/**
 * @param {Run} run
 * @param {number} n up to which event
 * @param {number} until the instant that the timeline ends at
 * @returns {Scale}
 */
export function scaleOf(run, n, until) {
  const from = run.rows[0]?.time ?? until
  const shown = Math.min(n, run.last)
  const away = run.away(shown, until)
  const gaps = joined([...idle(run, shown, from, until, away), ...(away ? [{...away}] : [])])
  const most = Math.max(1, until - from - gaps.reduce((sum, gap) => sum + gap.end - gap.start, 0))
  const width = most * Math.max(FOLDED_SHARE, FOLDED_SHARE_MAX / Math.max(gaps.length, 1))
  const whole = most + gaps.length * width
  const place = (/** @type {number} */ time) => {
    let length = Math.min(time, until) - from
    for (const gap of gaps) {
      if (time >= gap.end) length -= gap.end - gap.start - width
      else if (time > gap.start) length -= (time - gap.start) * (1 - width / (gap.end - gap.start))
      else break
    }
    return Math.max(0, Math.min(1, length / whole))
  }
  const folds = gaps.map((gap) => ({at: place((gap.start + gap.end) / 2), seconds: (gap.end - gap.start) / 1000}))
  return {place, folds, marks: marks(place, from, until, most, gaps), from, until}
}

/**
 * @param {Run} run @param {number} n how many events @param {number} from @param {number} until
 * @param {{start: number, end: number}|null} away what is folded in any case
 */
function idle(run, n, from, until, away) {
  const {rows} = run
  const time = (/** @type {number} */ i) => (i < n ? rows[i].time : until)
  // With very many gaps, a sample shows well enough how long they are.
  const apart = Math.max(1, Math.ceil(n / SAMPLED_MAX))
  const lengths = Float64Array.from({length: Math.ceil(n / apart)}, (_, i) => time(i * apart + 1) - time(i * apart)).filter((gap) => gap > 0).sort()
  const whole = until - from - (away ? away.end - away.start : 0)
  const bound = Math.max(SHORT_MS, LONG * (lengths[lengths.length >> 1] ?? 0), whole * FOLDED_SHARE * 2)
  /** @type {{start: number, end: number}[]} */
  const found = []
  for (const [at, status] of run.statuses) {
    if (at > n || !/^(waiting:(human|timer|signal|tool)|waiting$|paused|accepted)/.test(status)) continue
    // A waiting run has few events; its idle stretches begin right after the event at which it began to wait.
    for (let i = at - 1; i < n && run.statusAt(i + 1) === status; i++) {
      const start = time(i), end = time(i + 1)
      if (end - start > bound && start !== away?.start && found.at(-1)?.start !== start) found.push({start, end})
    }
  }
  return found
}

/** Gaps in their order; those that touch are one. @param {{start: number, end: number}[]} found */
function joined(found) {
  found.sort((a, b) => a.start - b.start)
  return found.filter((gap, i) => {
    const before = found[i - 1]
    if (!before || before.end < gap.start) return true
    gap.start = before.start
    before.start = NaN
    return true
  }).filter((gap) => !Number.isNaN(gap.start))
}

/** @param {(time: number) => number} place @param {number} from @param {number} until @param {number} most @param {{start: number, end: number}[]} gaps */
function marks(place, from, until, most, gaps) {
  const step = STEPS.find((one) => most / 1000 / one <= MARKS) ?? Math.ceil(most / 1000 / MARKS / 86400) * 86400
  const found = []
  for (let k = 0; found.length < 200; k++) {
    const time = from + k * step * 1000
    const gap = gaps.find((one) => time > one.start && time < one.end)
    if (gap) {
      k = Math.ceil((gap.end - from) / (step * 1000)) - 1
      continue
    }
    if (time > until) break
    found.push({at: place(time), seconds: k * step})
  }
  return found
}
