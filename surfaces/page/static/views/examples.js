// Examples: definitions that need no model, each started by one click; and what else begins a first run.

import {get, send, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {go} from './going.js'
import {failure} from './parts.js'

const WORDS_MAX = 12

/** @param {string} word */
const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1)

/** What a person sees who has no runs: examples, what is registered, and ways to bring a definition. */
export function firstRun() {
  const place = h('div', {class: 'first'})
  fill(place,
    h('h1', {}, 'Start your first run'),
    h('p', {class: 'soft'}, 'An example needs no API key: a script answers in place of a model. Its run opens as soon as it has started.'),
    exampleCards(), registered(),
    h('section', {}, h('h2', {}, 'Your own definition'),
      h('p', {class: 'actions begin'}, h('a', {class: 'button primary', href: to(['start'])}, 'Choose a file or paste a text'), ' ',
        h('span', {class: 'soft'}, 'or at the command line, in the folder where callboard up was started:')),
      h('pre', {tabindex: '0'}, 'callboard new first --language workflow\ncallboard start first/workflow.yaml --input @first/input.json --script first/script.yaml')),
    modelNote())
  return place
}

/** The examples of all languages, as cards. */
export function exampleCards() {
  const said = h('div')
  const cards = h('div', {class: 'examples'}, h('p', {class: 'soft'}, 'Examples are being read…'))
  get(['examples']).then(({examples}) => fill(cards, examples.map((/** @type {any} */ one) => card(one, said))), (error) => fill(said, failure(error)))
  return h('section', {'aria-label': 'Examples'}, cards, said)
}

/** @param {any} one @param {HTMLElement} said */
function card(one, said) {
  const title = `${capital(one.language)}: ${one.name}`
  const about = h('span', {class: 'soft'}, one.about)
  const button = h('button', {class: 'example', onclick: async () => {
    if (button.getAttribute('aria-disabled') === 'true') return
    button.setAttribute('aria-disabled', 'true')
    fill(said)
    try {
      const {run_id: run} = await send(['runs'], one.start)
      go(to(['runs', run]))
    } catch (error) {
      fill(said, failure(error))
    } finally {
      button.removeAttribute('aria-disabled')
    }
  }}, h('strong', {}, title), about, h('span', {class: 'does'}, '▶ Run this example'))
  return button
}

/** Registered definitions, among which is the code that workers host. */
function registered() {
  const place = h('section', {hidden: true})
  get(['definitions']).then(({definitions}) => {
    place.hidden = !definitions.length
    fill(place, h('h2', {}, 'Registered definitions'), h('ul', {class: 'chips'}, definitions.slice(0, WORDS_MAX).map((/** @type {any} */ one) =>
      h('li', {}, h('a', {class: 'button', href: to(['start', one.name])}, one.name, h('span', {class: 'soft'}, one.language))))),
    definitions.length > WORDS_MAX ? h('a', {href: to(['definitions'])}, 'All definitions') : null)
  }, () => {})
  return place
}

/** How a model is configured, if no worker has one. */
export function modelNote() {
  const place = h('div', {hidden: true})
  get(['workers']).then(({workers}) => {
    const known = workers.filter((/** @type {any} */ one) => typeof one.load?.has_model === 'boolean')
    if (!known.length || known.some((/** @type {any} */ one) => one.load.has_model)) return
    place.hidden = false
    fill(place, noModel())
  }, () => {})
  return place
}

/** @param {...import('../lib/dom.js').Child} more */
export const noModel = (...more) => h('section', {class: 'hint'}, h('h2', {}, 'No model is configured'),
  h('p', {}, 'Set ANTHROPIC_API_KEY in the environment of the workers, or CALLBOARD_MODEL with the key of its provider, and start the workers again. Until then, a start has to name a model, or to give a script that answers in its place.'), ...more)
