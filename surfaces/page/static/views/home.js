// Home: the current state at a glance: open questions, failures, running and latest runs.

import {get, to} from '../lib/api.js'
import {fill, h, settle} from '../lib/dom.js'
import {follow} from '../lib/follow.js'
import {count, dollars, duration, instant, left, short, some, spent, when} from '../lib/format.js'
import {added} from '../lib/run.js'
import {chip, look} from '../lib/status.js'
import {firstRun} from './examples.js'
import {failure} from './parts.js'

const SHOWN = 6
const DAY_S = 86_400
/** The runs whose cost is summed up. */
const ENDED = 'ended<1d'
const GATHER_MS = 500

/** Fill level of the store from which a warning is shown. */
const FILLS = 0.75

/** What the tiles count, each with the list that it leads to. @type {[string, string, Record<string, string>][]} */
const TILES = [
  ['running', 'running', {status: 'running'}],
  ['waiting', 'waiting', {status: 'waiting'}],
  ['failed', 'failed in 24 h', {status: 'failed', since: String(DAY_S)}],
  ['completed', 'completed in 24 h', {status: 'completed', since: String(DAY_S)}],
]

export class HomeView extends HTMLElement {
  store = h('div', {role: 'status'})
  tiles = h('div', {class: 'tiles'})
  cards = h('div', {class: 'cards'})
  board = h('div', {class: 'home'}, h('h1', {class: 'heard'}, 'Callboard'), this.store, this.tiles, this.cards)

  show() {
    this.load()
    this.measure()
  }

  /** Warn if the store, as reported by the workers, is nearly full. */
  async measure() {
    const {store} = this
    const found = await get(['workers']).catch(() => ({workers: /** @type {any[]} */ ([])}))
    const share = Math.max(0, ...found.workers.map((/** @type {any} */ one) => one.load?.store ?? 0))
    if (share > FILLS) fill(store, h('div', {class: 'failure'}, h('strong', {}, `The store is ${Math.floor(share * 100)} % full.`), h('p', {}, 'Make room before it is full: free disk space, raise the limit, or purge ended runs.')))
  }

  connectedCallback() {
    const changed = () => {
      this.asking ??= setTimeout(() => {
        this.asking = undefined
        this.load()
      }, GATHER_MS)
    }
    const leaves = [follow('runs', changed), follow('questions', changed)]
    this.leave = () => leaves.forEach((one) => one())
  }

  disconnectedCallback() {
    this.leave?.()
    clearTimeout(this.asking)
  }

  async load() {
    try {
      const [latest, failed, {questions, more}, {costs}, ...counted] = await Promise.all([
        get(['runs'], {limit: SHOWN}), get(['runs'], {status: 'failed', since: DAY_S, limit: SHOWN}), get(['questions'], {limit: SHOWN}), get(['costs'], {where: ENDED}),
        ...TILES.map(([, , query]) => get(['count'], query)),
      ])
      if (!this.isConnected) return
      if (!latest.runs.length) return this.first()
      const {board, tiles, cards} = this
      // Keep the focused element, from which the person may be about to navigate.
      settle(tiles, TILES.map(([status, word, query], i) => tile(status, word, counted[i].count, to(['runs'], query))))
      settle(cards,
        column(card('Waiting for an answer', to(['inbox']), questions.length ? questions.map(question) : [h('p', {class: 'soft none'}, 'No open questions.')], more ? 'more' : '')),
        column(
          card('Failed in the last 24 h', to(['runs'], {status: 'failed', since: DAY_S}), failed.runs.length ? failed.runs.map(run) : [h('p', {class: 'soft none'}, 'Nothing failed.')], failed.more ? 'more' : ''),
          costs.length ? card(`Cost in the last 24 h: ${spent(sum(costs))}`, '', costs.slice(0, SHOWN).map(spending), '') : null),
        column(card('Latest runs', to(['runs']), latest.runs.map(run), latest.more ? 'all' : '')))
      if (!board.isConnected) fill(this, board)
    } catch (error) {
      fill(this, failure(error))
    }
  }

  /** What is there already stays: somebody may be about to choose an example. */
  first() {
    if (!this.querySelector('.first')) fill(this, h('div', {class: 'home'}, firstRun()))
  }
}

/** @param {string} status @param {string} word @param {number} number @param {string} url */
function tile(status, word, number, url) {
  const [kind, glyph] = look(status)
  return h('a', {class: 'tile', href: url}, h('span', {class: `status ${kind}`}, h('span', {class: 'glyph', 'aria-hidden': 'true'}, glyph), h('span', {class: 'number'}, count(number))), h('span', {class: 'soft'}, word))
}

/** @param {...(Node|null)} cards */
const column = (...cards) => h('div', {class: 'column'}, ...cards)

/** @param {string} title @param {string} url @param {Node[]} rows @param {string} more */
const card = (title, url, rows, more) => h('section', {class: 'card'}, h('header', {}, h('h2', {}, title), more ? h('a', {class: 'soft', href: url}, more) : null), ...rows)

/** @param {any} one */
function run(one) {
  const started = one.started_at ?? one.accepted_at
  const facts = [one.definition, one.ended_at && one.duration_s !== undefined ? duration(one.duration_s) : '', one.tokens ? `${count(one.tokens)} tok` : '', dollars(one.cost)]
  return h('a', {class: 'card-row', href: to(['runs', one.run])}, chip(one.status, {small: true}),
    h('span', {class: 'card-name'}, h('strong', {}, one.run), h('span', {class: 'soft'}, one.error ? h('span', {class: 'code'}, one.error) : facts.filter(Boolean).join(' · '))),
    h('time', {class: 'soft', datetime: started, title: instant(started)}, when(started)))
}

/** @param {{cost: import('../lib/run.js').Cost}[]} costs */
const sum = (costs) => costs.reduce((all, {cost}) => added(all, cost), {usd: 0, unknown_tokens: 0})

/** What the runs of a definition have cost. @param {any} one */
const spending = (one) => h('a', {class: 'card-row', href: to(['runs'], {definition: one.name, q: ENDED})},
  h('span', {class: 'soft', 'aria-hidden': 'true'}, '$'),
  h('span', {class: 'card-name'}, h('strong', {}, one.name), h('span', {class: 'soft'}, `${some(one.runs, 'run')} · ${count(one.usage.input_tokens + one.usage.output_tokens)} tok`)),
  h('span', {}, spent(one.cost)))

/** @param {any} one */
const question = (one) => h('a', {class: 'card-row', href: to(['inbox'], {run: one.run, key: one.key})}, chip('waiting', {small: true}),
  h('span', {class: 'card-name'}, h('strong', {}, short(one.question || one.key, 120)), h('span', {class: 'soft'}, [one.run, one.definition, one.until ? left(one.until) : ''].filter(Boolean).join(' · '))))

customElements.define('cb-home', HomeView)
