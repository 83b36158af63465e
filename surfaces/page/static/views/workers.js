// Workers: the live workers, their partitions, and the waiting commands.

import {get} from '../lib/api.js'
import {fill, h, settle} from '../lib/dom.js'
import {duration, grouped, some} from '../lib/format.js'
import {operationsNav} from './operations.js'
import {failure, nothing} from './parts.js'

const LOOK_MS = 2_000
const LATE_S = 5

export class WorkersView extends HTMLElement {
  show() {
    this.note = h('span', {class: 'soft', role: 'status'})
    this.sheet = h('div', {class: 'sheet scrolls'})
    fill(this, h('div', {class: 'bar'}, h('h1', {}, 'Operations'), operationsNav('workers'), this.note), this.sheet)
    this.look()
  }

  connectedCallback() {
    this.looking = setInterval(() => !document.hidden && this.look(), LOOK_MS)
  }

  disconnectedCallback() {
    clearInterval(this.looking)
  }

  async look() {
    const {sheet, note} = this
    if (!sheet || !note) return
    try {
      const found = await get(['workers'])
      this.draw(found)
    } catch (error) {
      fill(sheet, failure(error))
    }
  }

  /** @param {any} found */
  draw(found) {
    const {sheet, note} = this
    if (!sheet || !note) return
    const workers = found.workers ?? []
    const {starts = 0, commands = 0, held = 0} = found.queue ?? {}
    const waiting = [some(starts, 'start'), `${some(commands, 'command')} waiting`, held ? `${some(held, 'run')} held back` : ''].filter(Boolean)
    const store = Math.max(-1, ...workers.map((/** @type {any} */ one) => one.load?.store ?? -1))
    settle(note, [`${some(workers.length, 'worker')}`, `${found.partitions ?? 0} partitions`, ...waiting, store < 0 ? '' : `store ${Math.floor(store * 100)} % full`].filter(Boolean).join(' · '))
    if (!workers.length) return settle(sheet, nothing('No worker is running', 'Started runs wait for a worker:', h('pre', {}, 'callboard worker')))
    const free = found.unowned ?? []
    // It is redrawn often; a text selection has to survive.
    settle(sheet,
      free.length ? h('div', {class: 'failure', role: 'alert'}, `No worker has ${some(free.length, 'partition')}: ${free.join(', ')}`) : null,
      h('table', {}, h('thead', {}, h('tr', {}, ['Worker', 'Last heard', 'Partitions', 'At work'].map((one) => h('th', {scope: 'col'}, one)))),
        h('tbody', {}, workers.map((/** @type {any} */ one) => h('tr', {},
          h('td', {}, h('strong', {}, one.name), one.guest ? h('span', {class: 'soft'}, ' guest') : null, one.word === 'leaving' ? h('span', {class: 'soft'}, ' leaving') : null),
          h('td', {}, h('span', {class: `status ${one.age_s > LATE_S ? 'failed' : 'ok'}`}, h('span', {class: 'glyph', 'aria-hidden': 'true'}, one.age_s > LATE_S ? '✕' : '✓'), `${duration(one.age_s)} ago`)),
          h('td', {}, owned(one.load?.partitions ?? [], found.partitions)),
          h('td', {}, one.load ? h('span', {class: 'parts'}, share('run', one.load.runs, one.load.runs_max), share('effect', one.load.effects, one.load.effects_max)) : h('span', {class: 'soft'}, 'unknown')))))))
  }
}

/** @param {number[]} own @param {number} all */
const owned = (own, all) => (own.length ? h('span', {class: 'parts', title: own.join(', ')}, some(own.length, 'partition'), partitions(own, all)) : h('span', {class: 'soft'}, 'none'))

/** @param {string} what @param {number} [now] @param {number} [most] */
const share = (what, now = 0, most = 0) => h('span', {}, `${some(now, what)} of ${grouped(most)} `, h('progress', {value: now, max: Math.max(most, 1), 'aria-label': what}))

/** @param {number[]} own @param {number} all */
function partitions(own, all) {
  const mine = new Set(own)
  return h('span', {class: 'cells', 'aria-hidden': 'true'}, Array.from({length: Math.min(all ?? 0, 128)}, (_, i) => h('i', {class: mine.has(i) ? 'own' : ''})))
}

customElements.define('cb-workers', WorkersView)
