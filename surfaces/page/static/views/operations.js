// Operations: schedules, costs, and keys by name; the workers have a view of their own (`workers.js`).

import {get, readsOnly, send, path, to} from '../lib/api.js'
import {fill, h, s, settle} from '../lib/dom.js'
import {count, instant, short, some, spent, when} from '../lib/format.js'
import {chip} from '../lib/status.js'
import {go} from './going.js'
import {dialog, failure, nothing} from './parts.js'

const SHOWN = 30
const LOOK_MS = 5_000

/** @type {[string, string][]} */
const PARTS = [['workers', 'Workers'], ['schedules', 'Schedules'], ['costs', 'Costs'], ['keys', 'Keys']]

/** The links between the views of operations. @param {string} here */
export const operationsNav = (here) => h('nav', {class: 'kinds', 'aria-label': 'Operations'}, PARTS.map(([name, word]) => h('a', {href: to([name]), 'aria-current': name === here ? 'page' : null}, word)))

/** @param {string[]} names @param {Node[]} rows */
const table = (names, rows) => h('table', {}, h('thead', {}, h('tr', {}, names.map((one) => h('th', {scope: 'col'}, one || h('span', {class: 'heard'}, 'Actions'))))), h('tbody', {}, rows))

/** @param {string} at */
const time = (at) => h('time', {datetime: at, title: instant(at)}, when(at))

export class SchedulesView extends HTMLElement {
  sheet = h('div', {class: 'sheet scrolls'})

  show() {
    fill(this, h('div', {class: 'bar'}, h('h1', {}, 'Operations'), operationsNav('schedules')), this.sheet)
    return this.look()
  }

  connectedCallback() {
    this.looking = setInterval(() => !document.hidden && !document.querySelector('dialog[open]') && this.look(), LOOK_MS)
  }

  disconnectedCallback() {
    clearInterval(this.looking)
  }

  async look() {
    const {sheet} = this
    try {
      const found = await get(['schedules'])
      if (!found.length) return fill(sheet, nothing('No schedules', 'A schedule starts runs of a registered definition at given times:', h('pre', {tabindex: '0'}, "callboard new first --language workflow\ncallboard push first/workflow.yaml --name nightly\ncallboard schedule add nightly --cron '0 2 * * *' --timezone Europe/Berlin --input @first/input.json --script first/script.yaml")))
      // It is drawn again and again; a text selection has to survive.
      settle(sheet, table(['Schedule', 'When', 'Definition', 'Next', 'Last run', 'Why not', ''], found.map((/** @type {any} */ one) => this.row(one))))
    } catch (error) {
      fill(sheet, failure(error))
    }
  }

  /** @param {any} one */
  row(one) {
    const started = one.last && one.last_status !== 'rejected'
    return h('tr', {},
      h('td', {}, h('strong', {}, one.name)), h('td', {}, one.when), h('td', {}, h('a', {href: to(['definitions', one.definition])}, one.definition)),
      h('td', {}, one.paused ? chip('paused') : one.next ? time(one.next) : h('span', {class: 'soft'}, 'never')),
      h('td', {}, one.last ? [started ? h('a', {href: to(['runs', one.last])}, short(one.last, 48)) : h('span', {}, short(one.last, 48)), ' ', one.last_status ? chip(one.last_status) : null] : h('span', {class: 'soft'}, 'none yet')),
      h('td', {}, reasons(one).map((text) => h('div', {}, text))),
      h('td', {class: 'right'}, readsOnly ? null : h('span', {class: 'verbs'},
        h('button', {class: 'quiet', onclick: () => this.change(one.name, one.paused ? 'resume' : 'pause')}, one.paused ? 'Resume' : 'Pause'),
        h('button', {class: 'quiet', onclick: () => this.drop(one.name)}, 'Remove…'))))
  }

  /** @param {string} name @param {string} change */
  async change(name, change) {
    try {
      await send(['schedules', name, change])
    } catch (error) {
      dialog(`${change === 'pause' ? 'Pause' : 'Resume'} was refused`, [failure(error)], 'Close', async () => {})
    }
    this.look()
  }

  /** @param {string} name */
  drop(name) {
    dialog(`Remove ${name}?`, [h('p', {}, 'It starts no more runs. Runs that it has started are not changed.')], 'Remove', async () => {
      const answer = await fetch(path('schedules', name), {method: 'DELETE', credentials: 'same-origin', headers: {'Callboard-Page': '1'}})
      if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error?.message ?? `the server answers ${answer.status}`)
      this.look()
    }, {dangerous: true})
  }
}

/** Why a schedule has not started a run, or may not. @param {any} one @returns {string[]} */
function reasons(one) {
  return [
    one.paused ? 'It is paused.' : '',
    one.skipped ? `${some(one.skipped, 'due time was', 'due times were')} skipped: the previous run had not ended.` : '',
    ...(one.last_problems ?? []).map((/** @type {any} */ problem) => `The start was refused: ${problem.where ? `${problem.where} ` : ''}${problem.message}${problem.expected ? `; expected ${problem.expected}` : ''}.`),
    ...(one.warnings ?? []).map((/** @type {any} */ problem) => problem.message),
  ].filter(Boolean)
}

/** Groups of costs, each with its heading and the search for the runs of one of them. @type {[string, string, (name: string) => Record<string, string>|null][]} */
const GROUPS = [
  ['day', 'By day (UTC)', (name) => ({q: `ended>=${name} and ended<${dayAfter(name)}`})],
  ['model', 'By model', () => null],
  ['definition', 'By definition', (name) => ({definition: name})],
  ['tag', 'By tag', (name) => ({tag: name})],
]
/** @type {[string, string][]} */
const SPANS = [['ended<1d', 'last 24 h'], ['ended<7d', 'last 7 days'], ['ended<30d', 'last 30 days'], ['', 'any time']]

export class CostsView extends HTMLElement {
  /** @param {import('../lib/urls.js').Place} place */
  async show(place) {
    const where = place.query.get('where') ?? 'ended<30d'
    const span = h('select', {'aria-label': 'Ended', onchange: () => go(to(['costs'], {where: span.value || 'any'}))}, SPANS.map(([value, word]) => h('option', {value}, word)))
    span.value = where === 'any' ? '' : where
    const sheet = h('div', {class: 'charts'})
    fill(this, h('div', {class: 'bar'}, h('h1', {}, 'Operations'), operationsNav('costs'), span), sheet)
    try {
      const found = await Promise.all(GROUPS.map(([by]) => get(['costs'], {by, where: where === 'any' ? '' : where})))
      if (!found[0].costs.length) return fill(sheet, nothing('No costs', 'Runs that have ended in this time used no model.'))
      fill(sheet, GROUPS.map(([by, title, search], i) => chart(by, title, by === 'day' ? found[i].costs.slice(-SHOWN) : found[i].costs.slice(0, SHOWN), search)))
    } catch (error) {
      fill(sheet, failure(error))
    }
  }
}

/** A chart of costs, whose figures stand beside its bars. @param {string} by @param {string} title @param {any[]} costs @param {(name: string) => Record<string, string>|null} search */
function chart(by, title, costs, search) {
  const known = costs.some((one) => one.cost.usd > 0)
  const size = (/** @type {any} */ one) => (known ? one.cost.usd : one.usage.input_tokens + one.usage.output_tokens)
  const most = Math.max(...costs.map(size), Number.MIN_VALUE)
  return h('section', {class: 'card chart'}, h('header', {}, h('h2', {}, title), costs.length ? h('span', {class: 'soft'}, known ? 'dollars' : 'tokens: no prices are known') : null),
    costs.length ? h('table', {}, h('thead', {class: 'heard'}, h('tr', {}, ['Name', 'Share', 'Runs', 'Tokens', 'Cost'].map((one) => h('th', {scope: 'col'}, one)))), h('tbody', {}, costs.map((one) => {
      const asked = search(one.name), share = size(one) / most
      return h('tr', {},
        h('td', {class: 'name'}, asked ? h('a', {href: to(['runs'], asked)}, one.name || 'none') : one.name || 'none'),
        h('td', {class: 'bar-cell'}, s('svg', {class: 'bar-line', viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true'}, s('rect', {x: 0, y: 0, width: Math.max(share * 100, 0.5), height: 10, rx: 1}))),
        h('td', {class: 'right'}, some(one.runs, 'run')), h('td', {class: 'right'}, `${count(one.usage.input_tokens + one.usage.output_tokens)} tok`), h('td', {class: 'right'}, spent(one.cost)))
    }))) : h('p', {class: 'soft none'}, by === 'tag' ? 'No runs have tags.' : 'None.'))
}

/** @param {string} day */
const dayAfter = (day) => new Date(Date.parse(`${day}T00:00:00Z`) + 86_400_000).toISOString().slice(0, 10)

export class KeysView extends HTMLElement {
  async show() {
    const sheet = h('div', {class: 'sheet scrolls'})
    fill(this, h('div', {class: 'bar'}, h('h1', {}, 'Operations'), operationsNav('keys')), sheet)
    try {
      const {keys, credentials} = await get(['access'])
      fill(sheet,
        h('section', {class: 'told'}, h('h2', {}, 'API keys'), keys.length
          ? table(['Name', 'Scopes', 'Created', 'Expires'], keys.map((/** @type {any} */ one) => h('tr', {}, h('td', {}, h('strong', {}, one.name)), h('td', {}, one.scopes.join(', ')), h('td', {}, time(one.created_at)), h('td', {}, one.expires_at ? time(one.expires_at) : h('span', {class: 'soft'}, 'never')))))
          : h('p', {class: 'soft'}, 'None. Programs that use the API get one by: callboard keys add NAME')),
        h('section', {class: 'told'}, h('h2', {}, 'Credentials for external services'), credentials.length
          ? table(['Provider', 'Of', 'Variables', 'Changed'], credentials.map((/** @type {any} */ one) => h('tr', {}, h('td', {}, h('strong', {}, one.provider)), h('td', {}, one.user || h('span', {class: 'soft'}, 'the tenant')), h('td', {}, h('code', {}, one.variables.join(', '))), h('td', {}, time(one.changed_at)))))
          : h('p', {class: 'soft'}, 'None. A worker that needs one gets it by: callboard credentials add PROVIDER')),
        h('p', {class: 'soft'}, 'Only names are shown: no secret leaves the store.'))
    } catch (error) {
      fill(sheet, failure(error))
    }
  }
}

customElements.define('cb-schedules', SchedulesView)
customElements.define('cb-costs', CostsView)
customElements.define('cb-keys', KeysView)
