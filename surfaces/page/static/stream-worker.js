// The worker that all tabs share: it holds the streams, so that any number of tabs needs only a few connections.

import {Counting} from './lib/counting.js'
import {Streams} from './lib/streams.js'

const GONE_MS = 180_000
/** How long a tab may say nothing before it is taken for closed; a hidden one speaks once a minute. */
const LOOK_MS = 30_000

/** @typedef {{time: number, followers: Map<number, import('./lib/stream.js').Follower>, counts: boolean}} Tab when it spoke last, what it follows, and whether it is told how many questions are open */

/** @type {Map<MessagePort, Tab>} */
const tabs = new Map()
/** @type {Streams|null} */
let streams = null
/** @type {Counting|null} */
let counting = null

/** @param {import('./lib/stream.js').State} state */
const changed = (state) => tabs.forEach((_, port) => port.postMessage({state}))

/** @param {MessagePort} port @param {any} asked */
function take(port, asked) {
  const tab = tabs.get(port) ?? {time: 0, followers: new Map(), counts: false}
  tabs.set(port, tab)
  tab.time = Date.now()
  streams ??= new Streams(asked.url, changed)
  if (asked.follow) {
    const {id, topic, after, since} = asked.follow
    streams.flush()
    leave(tab, id)
    const tell = (/** @type {any} */ told) => port.postMessage({id, told})
    const follower = {topic, after, since, tell}
    tab.followers.set(id, follower)
    streams.follow(follower)
    port.postMessage({state: streams.state})
  } else if (asked.leave) {
    leave(tab, asked.leave)
  } else if (asked.count) {
    tab.counts = true
    counting ??= new Counting(asked.count, streams, (count) => tabs.forEach(({counts}, port) => counts && port.postMessage({count})))
    port.postMessage({state: streams.state})
    if (counting.count !== null) port.postMessage({count: counting.count})
  } else if (asked.again) {
    streams.again()
    counting?.again()
  } else if (asked.bye) {
    forget(port)
  } else {
    port.postMessage({heard: heard(tab)})
  }
}

/** How far each follower of a tab has heard, which is what was said to the tab before this. @param {Tab} tab */
function heard(tab) {
  streams?.flush()
  return [...tab.followers].map(([id, {after}]) => [id, after])
}

/** @param {Tab} tab @param {number} id */
function leave(tab, id) {
  const follower = tab.followers.get(id)
  if (follower) streams?.leave(follower)
  tab.followers.delete(id)
}

/** @param {MessagePort} port */
function forget(port) {
  const tab = tabs.get(port)
  if (tab) for (const id of tab.followers.keys()) leave(tab, id)
  tabs.delete(port)
  if (counting && ![...tabs.values()].some(({counts}) => counts)) {
    counting.close()
    counting = null
  }
}

setInterval(() => {
  for (const [port, tab] of tabs) {
    if (tab.time >= Date.now() - GONE_MS) continue
    // A tab that was asleep receives this when it wakes up, and continues from its position.
    const places = heard(tab)
    forget(port)
    port.postMessage({forgotten: true, heard: places})
  }
}, LOOK_MS)

const here = /** @type {any} */ (self)
here.onconnect = (/** @type {MessageEvent} */ event) => {
  const port = event.ports[0]
  tabs.set(port, {time: Date.now(), followers: new Map(), counts: false})
  port.onmessage = (message) => take(port, message.data)
}
