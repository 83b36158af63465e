// The palette: find anything by a few letters; and the list of keys.

import {get, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {chip} from '../lib/status.js'
import {go} from './going.js'

const PLACES = [['Runs', ['runs']], ['Inbox', ['inbox']], ['Definitions', ['definitions']], ['Workers', ['workers']], ['Schedules', ['schedules']], ['Costs', ['costs']], ['Keys', ['keys']], ['Start a run', ['start']]]
const FOUND_MAX = 12
const TYPING_MS = 120

/** @type {[string[], string][]} */
const KEYS = [
  [['/'], 'find'], [['⌘K'], 'go to anything'], [['?'], 'these keys'], [['g r', 'g i', 'g d', 'g w', 'g s'], 'runs, inbox, definitions, workers, start'],
  [['j', 'k'], 'next row, previous row'], [['Enter'], 'open'], [['x'], 'select a run, to cancel or retry several at once'], [['h', 'l'], 'fold, unfold'], [[',', '.'], 'previous event, next event'],
  [['<', '>'], 'previous node, next node'], [['f'], 'follow the latest'], [['e'], 'next failure'], [['z'], 'graph in the whole window'], [['+', '−', '0'], 'zoom of the graph, all of it'], [['d'], 'compare with another run'], [['⌘⏎'], 'send an answer'], [['Esc'], 'close a menu, leave a field, or go back'],
]

export function palette() {
  if (document.querySelector('dialog.palette')) return
  const list = h('ul', {role: 'listbox', id: 'palette-found', 'aria-label': 'Found'})
  /** @type {[import('../lib/dom.js').Child[], string][]} */
  let found = []
  let active = 0, typing = 0
  const draw = () => fill(list, found.map(([content, url], i) => h('li', {role: 'option', id: `found-${i}`, 'aria-selected': String(i === active), onclick: () => open(url)}, content)))
  const open = (/** @type {string} */ url) => {
    element.close()
    go(url)
  }
  /** What was searched for, as far as it has been found; and whether the first of it is to be opened. @type {string|null} */
  let searched = null
  let entered = false
  const enter = () => {
    if (found[active]) open(found[active][1])
  }
  const search = async () => {
    clearTimeout(typing)
    const q = input.value.trim()
    found = PLACES.filter(([word]) => String(word).toLowerCase().includes(q.toLowerCase())).map(([word, parts]) => [[String(word)], to(/** @type {string[]} */ (parts))])
    active = 0
    draw()
    if (entered && found.length) return enter()
    const {runs} = await get(['runs'], {q, limit: FOUND_MAX}).catch(() => ({runs: /** @type {any[]} */ ([])}))
    if (q !== input.value.trim() || !element.isConnected) return
    searched = q
    found.push(...runs.map((/** @type {any} */ one) => [[chip(one.status, {small: true}), h('span', {class: 'stretch'}, one.run), h('span', {class: 'soft'}, one.definition)], to(['runs', one.run])]))
    draw()
    if (entered) enter()
  }
  const input = h('input', {type: 'text', placeholder: 'A run, a view', 'aria-label': 'Go to', role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'palette-found', autocomplete: 'off', oninput: () => {
    entered = false
    clearTimeout(typing)
    typing = setTimeout(search, TYPING_MS)
  }, onkeydown: (/** @type {KeyboardEvent} */ event) => {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key]
    if (step && found.length) {
      active = (active + step + found.length) % found.length
      draw()
      input.setAttribute('aria-activedescendant', `found-${active}`)
      list.children[active].scrollIntoView({block: 'nearest'})
    } else if (event.key === 'Enter' && searched === input.value.trim()) enter()
    else if (event.key === 'Enter') {
      // The list still belongs to the previous text.
      entered = true
      search()
    } else return
    event.preventDefault()
  }})
  const element = h('dialog', {class: 'palette', 'aria-label': 'Go to anything', onclose: () => element.remove()}, input, list)
  document.body.append(element)
  element.showModal()
  search()
}

export function help() {
  const element = h('dialog', {'aria-labelledby': 'keys-title', onclose: () => element.remove()},
    h('form', {method: 'dialog'}, h('h2', {id: 'keys-title'}, 'Keys'), h('dl', {class: 'keys'}, KEYS.map(([keys, word]) => h('div', {}, h('dt', {}, keys.map((one) => [h('kbd', {}, one), ' ']).flat()), h('dd', {}, word)))), h('div', {class: 'actions'}, h('button', {class: 'primary'}, 'Close'))))
  document.body.append(element)
  element.showModal()
}
