// Rows: the part of each event that the page keeps. Its content is fetched when it is shown. Pure.

/**
 * @typedef {object} Row
 * @property {number} n
 * @property {number} sequence in the stream
 * @property {number} time milliseconds
 * @property {string} type
 * @property {string} path
 * @property {number} iteration
 * @property {number} attempt
 * @property {string} key of an effect, else empty
 * @property {string} name what it is about: a node, a model, a tool, a question
 * @property {string} outcome
 * @property {number} tokens
 */

/** What a run came to: its error, if there is one, and how many warnings it bears, and the run that continues it. @typedef {{code: string|null, message: string, warnings: number, continued_as?: string|null}} Ending */

const NAME_MAX = 120

/** An event as a row. @param {any} event @param {number} sequence @returns {Row} */
export function rowOf(event, sequence) {
  const payload = event.payload ?? {}
  return {
    n: event.n,
    sequence,
    time: Date.parse(event.time),
    type: event.type,
    path: event.path ?? '',
    iteration: event.iteration ?? 0,
    attempt: event.attempt ?? 0,
    key: event.key ?? '',
    name: String(nameOf(event, payload) ?? '').slice(0, NAME_MAX),
    outcome: outcomeOf(event.type, payload),
    tokens: tokensOf(event.type, payload),
  }
}

/** @param {any} event @param {any} payload */
function nameOf(event, payload) {
  switch (event.type) {
    case 'run.accepted': return event.definition || payload.definition?.name
    case 'run.claimed': return payload.worker
    case 'run.paused': return payload.reason
    case 'run.parked': return payload.status
    case 'run.failed': return payload.error?.code
    case 'cancel.requested': return payload.kill ? 'kill' : ''
    case 'command.refused': return payload.verb
    case 'node.enter': return payload.name || payload.node
    case 'node.retry': return payload.reason
    case 'node.progress': return payload.message
    case 'node.warning': return payload.code
    case 'route': return payload.to
    case 'model.call': return modelOf(payload)
    case 'model.result': return payload.response_model
    case 'tool.call': case 'tool.result': return payload.tool
    case 'effect.call': return shortUri(payload.request?.provider) || payload.node || payload.kind
    case 'timer.set': return payload.purpose
    case 'human.asked': return payload.question
    case 'human.answered': return payload.by
    case 'signal.awaited': case 'signal.received': return payload.name
    case 'child.start': return payload.child
    default: return ''
  }
}

/** The model that is asked, or what stands in for it. @param {any} call */
function modelOf({model, provider}) {
  const standsIn = ['scripted', 'recorded'].includes(provider) && !/^(scripted|recorded)(:|$)/.test(model)
  return standsIn ? provider : model
}

/** The name in a provider's URI, without its namespace and its version. @param {unknown} uri */
function shortUri(uri) {
  if (typeof uri !== 'string') return ''
  const names = uri.split('/').slice(2)
  return names.length > 1 ? names.slice(0, -1).join('/') : names[0] ?? uri
}

/** @param {string} type @param {any} payload */
function outcomeOf(type, payload) {
  switch (type) {
    case 'run.end': return payload.status
    case 'run.failed': case 'run.quarantined': case 'command.refused': return 'failed'
    case 'run.diverged': return payload.entry ? 'waiting:code' : 'failed'
    case 'node.exit': case 'human.closed': return payload.outcome
    case 'child.end': return {completed: 'ok', cancelled: 'cancelled'}[/** @type {string} */ (payload.status)] ?? 'failed'
    case 'effect.cancelled': return 'cancelled'
    case 'tool.call': return payload.via === 'caller' ? 'caller' : ''
    case 'effect.result': return payload.error || failedResult(payload.value) ? 'failed' : 'ok'
    case 'model.result': case 'tool.result': case 'timer.fired': case 'signal.received': case 'run.resumed':
      return payload.error ? 'failed' : 'ok'
    default: return ''
  }
}

/** Whether a provider answers with a failure. @param {any} value */
function failedResult(value) {
  const result = value?.result
  return typeof result?.type === 'string' && typeof result.code === 'string' && result.type !== 'success'
}

/** @param {string} type @param {any} payload */
function tokensOf(type, payload) {
  const {usage} = payload
  return usage && ['model.result', 'child.end', 'effect.result'].includes(type) ? (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0) : 0
}

/** What an event says that has a run performed no further, as its index says it; null of any other. @param {any} event @returns {Ending|null} */
export function endingOf({type, payload}) {
  if (type !== 'run.end' && type !== 'run.quarantined') return null
  const error = type === 'run.end' ? payload.error : payload
  return {code: error?.code ?? null, message: String(error?.message ?? ''), warnings: payload.warnings?.length ?? 0, continued_as: payload.successor?.run ?? null}
}

/**
 * Read a page of the index: columns, most of them differences to the row before.
 * @param {any} index
 * @returns {Row[]}
 */
export function rowsOf(index) {
  const rows = []
  let n = index.after, sequence = 0, time = 0
  for (let i = 0; i < index.count; i++) {
    n += index.n[i]
    sequence += index.sequence[i]
    time += index.time[i]
    const path = index.paths[index.path[i]], slot = index.slots[index.slot[i]]
    const iteration = index.iteration[i], attempt = index.attempt[i]
    rows.push({
      n, sequence, time, path, iteration, attempt,
      type: index.types[index.type[i]],
      key: index.keys?.[n] ?? (slot ? `${path}#${iteration}.${attempt}!${slot}` : ''),
      name: index.names[index.name[i]],
      outcome: index.outcomes[index.outcome[i]],
      tokens: index.tokens[i],
    })
  }
  return rows
}
