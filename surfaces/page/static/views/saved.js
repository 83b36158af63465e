// Saved filters: named searches of the list, stored in this browser, each a link.

import {tenant, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {dialog, field} from './parts.js'

const PLACE = `callboard.filters.${tenant}`
const SAVED_MAX = 50

/** @typedef {{name: string, asked: Record<string, string>}} Saved */

/** @returns {Saved[]} */
function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(PLACE) ?? '[]')
    return Array.isArray(found) ? found.filter((one) => typeof one?.name === 'string' && one.asked) : []
  } catch {
    // Written by another program: no saved filters are lost.
    return []
  }
}

/** @param {Saved[]} saved */
const keep = (saved) => localStorage.setItem(PLACE, JSON.stringify(saved.slice(0, SAVED_MAX)))

/** The menu of saved filters. @param {() => Record<string, string>} asked what the list is narrowed to now */
export function savedFilters(asked) {
  const list = h('ul', {})
  const menu = h('details', {class: 'menu', ontoggle: () => menu.open && draw()}, h('summary', {class: 'button'}, 'Saved'), list)
  const save = () => {
    menu.open = false
    const name = h('input', {type: 'text', required: true, autocomplete: 'off'})
    dialog('Save these filters', [field('Name', name)], 'Save', async () => {
      keep([{name: name.value.trim(), asked: asked()}, ...kept().filter((one) => one.name !== name.value.trim())])
    })
  }
  const draw = () => fill(list,
    kept().map((one) => h('li', {class: 'saved'},
      h('a', {href: to(['runs'], one.asked), onclick: () => { menu.open = false }}, one.name),
      h('button', {class: 'quiet', 'aria-label': `Forget ${one.name}`, onclick: () => {
        keep(kept().filter((other) => other.name !== one.name))
        draw()
      }}, '✕'))),
    h('li', {}, h('button', {class: 'quiet', onclick: save}, 'Save these filters…')))
  return menu
}
