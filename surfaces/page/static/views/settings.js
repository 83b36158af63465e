// Settings of this browser: theme, time zone and notifications.

import {h} from '../lib/dom.js'
import {inZone, zoneName} from '../lib/format.js'
import {field} from './parts.js'

const THEME = 'callboard.theme', ZONE = 'callboard.zone', NOTIFY = 'callboard.notify'
const LOCAL = '', UTC = 'UTC'
const TAG = 'callboard'

/** Put what was chosen into effect. */
export function applySettings() {
  const theme = localStorage.getItem(THEME) ?? ''
  if (theme) document.documentElement.dataset.theme = theme
  else delete document.documentElement.dataset.theme
  inZone(localStorage.getItem(ZONE) ?? LOCAL)
}

/** @param {string} name @param {string} value */
function keep(name, value) {
  if (value) localStorage.setItem(name, value)
  else localStorage.removeItem(name)
  applySettings()
}

/** The dialog of the settings. @param {() => void} changed called when texts of times look different */
export function settings(changed) {
  const theme = select([['', 'System'], ['light', 'Light'], ['dark', 'Dark']], localStorage.getItem(THEME) ?? '', (value) => {
    keep(THEME, value)
    changed()
  })
  const chosen = localStorage.getItem(ZONE) ?? LOCAL
  const zones = Intl.supportedValuesOf?.('timeZone') ?? []
  const zone = select([[LOCAL, 'This computer'], [UTC, 'UTC'], ...zones.filter((one) => one !== UTC).map((one) => [one, one])], chosen, (value) => {
    keep(ZONE, value)
    changed()
  })
  const told = h('span', {class: 'told', role: 'status'})
  const notify = h('input', {type: 'checkbox', onchange: async () => {
    if (notify.checked && (await Notification.requestPermission()) !== 'granted') {
      notify.checked = false
      told.textContent = 'The browser does not allow notifications of this page: allow them in its settings.'
    }
    keep(NOTIFY, notify.checked ? 'yes' : '')
  }})
  notify.checked = notifies()
  notify.disabled = !('Notification' in globalThis)
  if (notify.disabled) told.textContent = 'This browser has no notifications at this address.'
  const element = h('dialog', {'aria-labelledby': 'settings-title', onclose: () => element.remove()},
    h('form', {method: 'dialog'}, h('h2', {id: 'settings-title'}, 'Settings of this browser'),
      field('Theme', theme), field('Time zone', zone),
      h('div', {class: 'field'}, h('label', {class: 'check'}, notify, 'Notify me of new questions while this page is in the background'), told),
      h('div', {class: 'actions'}, h('button', {class: 'primary'}, 'Close'))))
  document.body.append(element)
  element.showModal()
}

/** @param {string[][]} options @param {string} value @param {(value: string) => void} then */
function select(options, value, then) {
  const made = h('select', {onchange: () => then(made.value)}, options.map(([one, word]) => h('option', {value: one}, word)))
  made.value = value
  return made
}

const notifies = () => localStorage.getItem(NOTIFY) === 'yes' && 'Notification' in globalThis && Notification.permission === 'granted'

/** Show a notification if the person wants them and looks at something else; `open` is called when it is clicked. @param {string} title @param {string} body @param {() => void} open */
export function announce(title, body, open) {
  if (!document.hidden || !notifies()) return
  // Notices with the same tag replace each other, so that several tabs show one.
  const shown = new Notification(title, {body, tag: TAG, icon: new URL('../icon.svg', import.meta.url).href})
  shown.onclick = () => {
    focus()
    open()
    shown.close()
  }
}

/** The button of the settings, which shows the time zone. @param {() => void} changed */
export function settingsButton(changed) {
  const zone = h('span', {class: 'zone'}, zoneName())
  return h('button', {class: 'quiet', title: 'Theme, time zone, notifications', 'aria-label': `Settings, time zone ${zoneName()}`, onclick: () => settings(() => {
    zone.textContent = zoneName()
    changed()
  })}, h('span', {'aria-hidden': 'true'}, '⚙'), zone)
}
