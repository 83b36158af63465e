// Saved views: filters, order and columns of the list under a name, stored in this browser, each a link.

import {tenant, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {dialog, field} from './parts.js'

const PLACE = `callboard.filters.${tenant}`
const SAVED_MAX = 50

/** @typedef {{name: string, asked: Record<string, string>, columns?: string[]}} Saved */

/** @returns {Saved[]} */
function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(PLACE) ?? '[]')
    return Array.isArray(found) ? found.filter((one) => typeof one?.name === 'string' && one.asked) : []
  } catch {
    // Written by another program: no saved views are lost.
    return []
  }
}

/** @param {Saved[]} saved */
const keep = (saved) => localStorage.setItem(PLACE, JSON.stringify(saved.slice(0, SAVED_MAX)))

/**
 * The menu of saved views.
 * @param {() => Record<string, string>} asked what the list is narrowed to now, and its order
 * @param {() => string[]} columns that are shown now
 * @param {(columns: string[]) => void} show other columns
 */
export function savedViews(asked, columns, show) {
  const list = h('ul', {})
  const menu = h('details', {class: 'menu', ontoggle: () => menu.open && draw()}, h('summary', {class: 'button'}, 'Views'), list)
  const save = () => {
    menu.open = false
    const name = h('input', {type: 'text', required: true, autocomplete: 'off'})
    dialog('Save this view', [field('Name', name), h('p', {}, 'Filters, order and columns are kept in this browser.')], 'Save', async () => {
      keep([{name: name.value.trim(), asked: asked(), columns: columns()}, ...kept().filter((one) => one.name !== name.value.trim())])
    })
  }
  const draw = () => fill(list,
    kept().map((one) => h('li', {class: 'saved'},
      h('a', {href: to(['runs'], one.asked), onclick: () => {
        menu.open = false
        if (one.columns) show(one.columns)
      }}, one.name),
      h('button', {class: 'quiet', 'aria-label': `Forget ${one.name}`, onclick: () => {
        keep(kept().filter((other) => other.name !== one.name))
        draw()
      }}, '✕'))),
    h('li', {}, h('button', {class: 'quiet', onclick: save}, 'Save this view…')))
  return menu
}
