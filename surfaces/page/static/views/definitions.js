// Definitions: the registered ones, and the drawing, text, versions and differences of one.

import {get, readsOnly, Refused, send, to} from '../lib/api.js'
import {fill, h} from '../lib/dom.js'
import {compared} from '../lib/lines.js'
import {instant, some, when} from '../lib/format.js'
import {versionOf} from '../lib/urls.js'
import {Graph} from './graph.js'
import {dialog, failure, field, nothing} from './parts.js'
import {go} from './going.js'

const HASH_SHOWN = 12
/** Versions whose runs are asked for at once. */
const VERSIONS_MAX = 20

export class DefinitionsView extends HTMLElement {
  async show() {
    const place = h('div', {class: 'sheet scrolls'})
    fill(this, h('div', {class: 'bar'}, h('h1', {}, 'Definitions')), place)
    try {
      const {definitions} = await get(['definitions'])
      if (!definitions.length) {
        return fill(place, nothing('Nothing registered yet', 'A registered definition is started by name, and its versions are kept:', h('pre', {tabindex: '0'}, 'callboard new first --language workflow\ncallboard push first/workflow.yaml --name triage')))
      }
      fill(place, h('table', {class: 'registered'}, h('thead', {}, h('tr', {}, ['Name', 'Title', 'Language', 'Version', 'Hash', ''].map((one) => h('th', {scope: 'col'}, one || h('span', {class: 'heard'}, 'Start'))))),
        h('tbody', {}, definitions.map((/** @type {any} */ one) => h('tr', {},
          h('td', {}, h('a', {href: to(['definitions', one.name])}, h('strong', {}, one.name))),
          h('td', {}, one.title ?? ''), h('td', {class: 'soft'}, one.language), h('td', {}, `v${one.version}`),
          h('td', {}, h('code', {class: 'soft'}, one.hash.slice(0, HASH_SHOWN))),
          h('td', {class: 'right'}, h('a', {class: 'button', href: to(['start', one.name])}, 'Start')))))))
    } catch (error) {
      fill(place, failure(error))
    }
  }
}

export class DefinitionView extends HTMLElement {
  /** @param {import('../lib/urls.js').Place} place */
  async show(place) {
    const [name, hash] = versionOf(place.names[0])
    this.name = name
    const body = h('div', {class: 'definition'})
    fill(this, h('div', {class: 'bar'}, h('a', {href: to(['definitions']), class: 'soft'}, 'Definitions ›'), h('h1', {}, name)), body)
    try {
      const run = place.query.get('run')
      const kept = await this.find(name, hash, run !== null)
      if (!kept) return await this.unregistered(body, run)
      // A version may be registered under another name than its text has.
      this.name = kept.name && !hash ? name : kept.name || name
      const [{versions}, about] = await Promise.all([get(['definitions', this.name, 'versions']), get(['definitions', kept.hash, 'about'])])
      this.querySelector('h1')?.replaceChildren(this.name)
      this.draw(body, kept, versions, about, hash)
    } catch (error) {
      fill(body, failure(error, h('a', {class: 'button', href: to(['runs'], {definition: name})}, 'Its runs')))
    }
  }

  /** The registration of a name, of a version of it, or of a hash, where the name is that of the text. @param {string} name @param {string} hash @param {boolean} ofText */
  async find(name, hash, ofText) {
    for (const key of !hash ? [name] : ofText ? [hash] : [`${name}@${hash}`, hash]) {
      try {
        const found = await get(['definitions', key])
        return key === hash ? found : {...found, name}
      } catch (error) {
        if (!(error instanceof Refused && error.status === 404)) throw error
      }
    }
    return null
  }

  /** A definition that was started from a text is in its run. @param {HTMLElement} body @param {string|null} run */
  async unregistered(body, run) {
    const name = /** @type {string} */ (this.name)
    if (!run) return fill(body, nothing(`No definition is registered as ${name}`, 'A run that was started from a text or a file has its definition with it.', h('a', {class: 'button', href: to(['runs'], {definition: name})}, `Runs of ${name}`)))
    const page = await get(['runs', run, 'events'], {after: 0, limit: 1})
    const {definition} = page.events[0].event.payload
    const about = await send(['definitions', 'about'], {source: definition.source, language: definition.language})
    const graph = new Graph({chosen: () => {}})
    fill(
      body,
      h('div', {class: 'facts'}, about.title ? h('strong', {}, about.title) : null, h('span', {class: 'soft'}, definition.language), h('code', {class: 'soft', title: definition.hash}, definition.hash.slice(0, HASH_SHOWN)),
        h('span', {}, 'not registered; from the run ', h('a', {href: to(['runs', run])}, run)), h('a', {href: ofVersions([definition])}, 'Its runs'),
        h('span', {class: 'stretch'}), readsOnly ? null : h('button', {onclick: () => this.register(definition)}, 'Register…'), readsOnly ? null : h('a', {class: 'button primary', href: to(['start'], {like: run})}, 'Start a run')),
      h('div', {class: 'definition-panes two'},
        h('section', {class: 'pane', 'aria-label': 'Graph'}, graph.element),
        h('section', {class: 'pane', 'aria-label': 'Text'}, h('div', {class: 'bar small'}, h('h2', {}, 'Text')), h('pre', {class: 'source', tabindex: '0'}, definition.source))),
    )
    graph.drawn(about.graph)
  }

  /** @param {{source: string, language: string, name?: string}} definition */
  register({source, language, name}) {
    const input = h('input', {type: 'text', required: true, autocomplete: 'off', value: name ?? ''})
    dialog('Register this definition', [field('Name', input), h('p', {}, 'It is started by this name from then on, and its versions are kept.')], 'Register', async () => {
      const called = input.value.trim()
      await send(['definitions'], {name: called, source, language})
      go(to(['definitions', called]))
    })
  }

  /** @param {HTMLElement} body @param {any} kept @param {any[]} versions @param {any} about @param {string} hash */
  draw(body, kept, versions, about, hash) {
    const {name} = this
    const graph = new Graph({chosen: () => {}})
    const shown = versions.find((one) => one.hash === kept.hash) ?? versions[0]
    const text = h('pre', {class: 'source', tabindex: '0'}, kept.source)
    const which = h('span', {class: 'soft'}, `v${shown?.number}`)
    const plain = h('button', {class: 'quiet', hidden: true, onclick: () => {
      fill(text, kept.source)
      which.textContent = `v${shown?.number}`
      plain.hidden = true
    }}, 'show only the text')
    const compare = async (/** @type {any} */ other) => {
      const before = await get(['definitions', other.hash])
      which.textContent = `v${other.number} compared with v${shown?.number}`
      plain.hidden = false
      fill(text, compared(before.source, kept.source).map(({sign, line}) => h('span', {class: `line ${sign === '+' ? 'added' : sign === '-' ? 'removed' : ''}`}, `${sign} ${line}\n`)))
    }
    fill(
      body,
      h('div', {class: 'facts'},
        about.title ? h('strong', {}, about.title) : null, h('span', {class: 'soft'}, kept.language), h('code', {class: 'soft', title: kept.hash}, kept.hash.slice(0, HASH_SHOWN)),
        h('a', {href: ofVersions(versions)}, 'Its runs'),
        h('span', {class: 'stretch'}), h('a', {class: 'button primary', href: to(['start', hash ? `${name}@${hash}` : name])}, 'Start a run')),
      h('div', {class: 'definition-panes'},
        h('section', {class: 'pane', 'aria-label': 'Graph'}, graph.element),
        h('section', {class: 'pane', 'aria-label': 'Text'}, h('div', {class: 'bar small'}, h('h2', {}, 'Text'), which, plain), text),
        h('section', {class: 'pane', 'aria-label': 'Versions'}, h('div', {class: 'bar small'}, h('h2', {}, 'Versions')),
          h('ul', {class: 'versions'}, versions.map((one) => h('li', {'aria-current': one === shown ? 'true' : null},
            h('a', {href: to(['definitions', `${name}@${one.hash}`])}, h('strong', {}, `v${one.number}`)), ' ',
            one.in_force ? h('span', {class: 'status ok'}, h('span', {class: 'glyph', 'aria-hidden': 'true'}, '✓'), 'in force') : null,
            h('div', {class: 'facts soft'}, h('time', {datetime: one.registered_at, title: instant(one.registered_at)}, when(one.registered_at)), one.by ? h('span', {}, one.by) : null, h('a', {href: ofVersions([one])}, some(one.runs ?? 0, 'run')), one.restores ? h('span', {}, `restores v${one.restores}`) : null),
            h('div', {class: 'actions begin'},
              one.hash !== kept.hash ? h('button', {class: 'quiet', onclick: () => compare(one)}, 'compare') : null,
              one.in_force ? null : h('button', {class: 'quiet', onclick: () => this.back(one)}, 'go back to this…'))))))),
    )
    graph.drawn(about.graph)
  }

  /** @param {any} version */
  back(version) {
    const name = /** @type {string} */ (this.name)
    dialog(`Go back to v${version.number} of ${name}?`, [h('p', {}, 'This version is registered again, and new runs use it. Current runs keep their version.')], 'Go back', async () => {
      await send(['definitions', name, 'rollback'], {}, {to: version.hash})
      this.show({view: 'definition', tenant: '', names: [name], query: new URLSearchParams()})
    })
  }
}

/** The runs of some versions, by whatever name they were started. @param {{hash: string}[]} versions */
function ofVersions(versions) {
  const hashes = [...new Set(versions.map((one) => one.hash).filter(Boolean))].slice(0, VERSIONS_MAX)
  return to(['runs'], {q: hashes.map((hash) => `hash~${hash.slice(0, HASH_SHOWN)}`).join(' or ')})
}

customElements.define('cb-definitions', DefinitionsView)
customElements.define('cb-definition', DefinitionView)
