// Workers: who is there to perform runs, which partitions they have, and what waits for them.

import {get} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {duration, some} from '../lib/format.js'
import {failure, nothing} from './parts.js'

const LOOK_MS = 2_000
const LATE_S = 5

export class WorkersView extends HTMLElement {
  show() {
    this.note = h('span', {class: 'soft', role: 'status'})
    this.sheet = h('div', {class: 'sheet scrolls'})
    fill(this, h('div', {class: 'bar'}, h('h1', {}, 'Workers'), this.note), this.sheet)
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
    const waiting = Object.entries(found.queue ?? {}).map(([name, count]) => `${count} ${name} waiting`)
    fill(note, [`${some(workers.length, 'worker')}`, `${found.partitions ?? 0} partitions`, ...waiting].join(' · '))
    if (!workers.length) return fill(sheet, nothing('No worker is there', 'Runs that are started wait until one comes:', h('pre', {}, 'callboard worker')))
    const free = found.unowned ?? []
    fill(sheet,
      free.length ? h('div', {class: 'failure', role: 'alert'}, `Nobody has ${some(free.length, 'partition')}: ${free.join(', ')}`) : null,
      h('table', {}, h('thead', {}, h('tr', {}, ['Worker', 'Last heard', 'Partitions', 'At work'].map((one) => h('th', {scope: 'col'}, one)))),
        h('tbody', {}, workers.map((/** @type {any} */ one) => h('tr', {},
          h('td', {}, h('strong', {}, one.name)),
          h('td', {}, h('span', {class: `status ${one.age_s > LATE_S ? 'failed' : 'ok'}`}, h('span', {class: 'glyph', 'aria-hidden': 'true'}, one.age_s > LATE_S ? '✕' : '✓'), `${duration(one.age_s)} ago`)),
          h('td', {}, (one.partitions ?? []).length ? h('span', {class: 'parts', title: one.partitions.join(', ')}, some(one.partitions.length, 'partition'), partitions(one.partitions, found.partitions)) : h('span', {class: 'soft'}, 'none')),
          h('td', {class: 'soft'}, Object.entries(one.slots ?? {}).map(([name, slot]) => `${name} ${typeof slot === 'object' && slot ? Object.values(slot).join(' of ') : slot}`).join(' · ')))))))
  }
}

/** @param {number[]} own @param {number} all */
function partitions(own, all) {
  const mine = new Set(own)
  return h('span', {class: 'cells', 'aria-hidden': 'true'}, Array.from({length: Math.min(all ?? 0, 128)}, (_, i) => h('i', {class: mine.has(i) ? 'own' : ''})))
}

customElements.define('cb-workers', WorkersView)
