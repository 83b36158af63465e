// The worker that all tabs share: it holds the one stream, so that however many tabs there are, there is one connection.

import {Stream} from './lib/stream.js'

const GONE_MS = 180_000
/** How long a tab may say nothing before it is taken for closed; a hidden one speaks once a minute. */
const LOOK_MS = 30_000

/** @type {Map<MessagePort, number>} */
const heard = new Map()
/** @type {Stream|null} */
let stream = null

/** @param {import('./lib/stream.js').State} state */
const changed = (state) => heard.forEach((_, port) => port.postMessage({state}))

/** @param {MessagePort} port @param {any} asked */
function take(port, asked) {
  heard.set(port, Date.now())
  stream ??= new Stream(asked.url, changed)
  if (asked.follow) {
    const {id, topic, after} = asked.follow
    const tell = (/** @type {any} */ told) => port.postMessage({id, told})
    stream.follow(key(port, id), {topic, after, tell})
    port.postMessage({state: stream.state})
  } else if (asked.leave) {
    stream.leave(key(port, asked.leave))
  } else if (asked.again) {
    stream.renew(0)
  } else if (asked.bye) {
    forget(port)
  }
}

/** @type {Map<MessagePort, Map<number, object>>} */
const keys = new Map()

/** @param {MessagePort} port @param {number} id */
function key(port, id) {
  const own = keys.get(port) ?? new Map()
  keys.set(port, own)
  if (!own.has(id)) own.set(id, {})
  return own.get(id)
}

/** @param {MessagePort} port */
function forget(port) {
  for (const one of keys.get(port)?.values() ?? []) stream?.leave(one)
  keys.delete(port)
  heard.delete(port)
}

setInterval(() => {
  for (const [port, time] of heard) if (time < Date.now() - GONE_MS) forget(port)
}, LOOK_MS)

const here = /** @type {any} */ (self)
here.onconnect = (/** @type {MessageEvent} */ event) => {
  const port = event.ports[0]
  heard.set(port, Date.now())
  port.onmessage = (message) => take(port, message.data)
}
