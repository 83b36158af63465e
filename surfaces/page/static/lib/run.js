// A run: rows folded into spans, statuses and counts, so that the state after any event is looked up without folding
// again. Pure.

/** @typedef {import('./rows.js').Row} Row */
/** @typedef {{usd: number, unknown_tokens: number, unmetered?: number}} Cost */

/** The sum of two costs. @param {Cost|null|undefined} one @param {Cost} other @returns {Cost} */
export function added(one, other) {
  const {usd, unknown_tokens, unmetered} = one ?? {usd: 0, unknown_tokens: 0}
  return {usd: usd + other.usd, unknown_tokens: unknown_tokens + other.unknown_tokens, unmetered: (unmetered ?? 0) + (other.unmetered ?? 0)}
}

/**
 * Something that lasts: a node, an effect, the run itself.
 * @typedef {object} Span
 * @property {string} id
 * @property {'run'|'node'|'model'|'tool'|'effect'|'timer'|'human'|'signal'|'child'|'pause'|'fan'} kind
 * @property {string} path
 * @property {number} iteration
 * @property {string} name
 * @property {string} key
 * @property {number} n0 the event that began it
 * @property {number} n1 the event that ended it, Infinity while it is open
 * @property {number} t0
 * @property {number} t1 Infinity while it is open
 * @property {string} outcome how it ended
 * @property {number} tokens
 * @property {Cost|null} cost with what is inside of it; null: nothing, or not known yet
 * @property {number} depth
 * @property {number} retries
 * @property {Span[]} children
 * @property {Span|null} parent
 * @property {Span[]} members of a fan-out: the same for each item, in the order in which they began
 * @property {Map<string, number>|null} counts of a fan-out: how many of its members there were of each outcome, as it was looked at last
 * @property {Span|null} fan the fan-out that it is a member of
 * @property {Span|null} item of a repeated try and of the wait before it, the first try
 * @property {Span[]} tries of a first try, the repeated ones and the waits before them
 */

/** @type {Record<string, Span['kind']>} */
const INTENTS = {
  'model.call': 'model', 'tool.call': 'tool', 'effect.call': 'effect', 'timer.set': 'timer', 'human.asked': 'human',
  'signal.awaited': 'signal', 'child.start': 'child', 'run.paused': 'pause',
}

/** @type {Record<string, string>} */
const CLOSES = {
  'model.result': 'model', 'tool.result': 'tool', 'effect.result': 'effect', 'timer.fired': 'timer',
  'human.closed': 'human', 'signal.received': 'signal', 'child.end': 'child', 'run.resumed': 'pause',
}

/** The end of the key of a try of a step, or of the wait before it, from the second try on. */
const TRY = /!(step|backoff)\.\d+$/
/** The type of what stands for an event that cannot be had. */
export const LOST = 'unreadable'
/** How many siblings that differ in their index only are shown as one. */
export const FAN_MIN = 20
/** The members of what is not a fan-out. @type {Span[]} */
const NONE = []
/** How what is open has its run, or its node, stand: of several the first counts. A timer beside something else has it stand no way. */
const STANDINGS = ['waiting:human', 'waiting:tool', 'paused', 'busy', 'waiting:signal', 'waiting:child', 'waiting:timer', '']
const WAITING_TIMERS = ['sleep', 'delay', 'wait'], COMPANION_TIMERS = ['answer', 'warning', 'expiry']

export class Run {
  constructor() {
    /** @type {Row[]} */
    this.rows = []
    /** @type {Span} */
    this.root = span('run', '', 0, '', '', 0, NaN)
    /** @type {Map<string, Span>} open ones, by kind and key */
    this.open = new Map()
    /** @type {Map<string, Span>} by path and iteration */
    this.nodes = new Map()
    /** @type {Map<string, Span>} the execution of each path that began last */
    this.latest = new Map()
    /** @type {Map<string, Span[]>} those that go on, by path */
    this.going = new Map()
    /** @type {Map<string, Span[]>} by path */
    this.byPath = new Map()
    /** @type {Map<string, Span[]>} executions of the same node, by its path without indices, in the order in which they began */
    this.byPattern = new Map()
    /** @type {Map<string, Span>} what siblings that differ in their index only are members of, by their parent, kind and path */
    this.fans = new Map()
    /** @type {Map<string, Span>} first tries of steps that are in a fan-out, by their key */
    this.firstTries = new Map()
    /** Of the drawing the ids of its nodes. @type {string[]} */
    this.ids = []
    /** @type {Map<string, string>} by path, what of the drawing stands for it */
    this.drawn = new Map()
    /** @type {Map<string, Span[][]>} the executions of what stands for them in the drawing, by its id: of each path in the order in which they began */
    this.parts = new Map()
    /** @type {Map<string, number>} edges of the drawing that were taken, `from to`, and with which event first */
    this.taken = new Map()
    /** @type {(Span|undefined)[]} what an event began or ended, by its number */
    this.about = []
    /** @type {Map<string, number>} how many open ones have the run stand how */
    this.standing = new Map()
    /** What was last looked up of the drawing. @type {{at: string, found: Map<string, {status: string, times: number}>}} */
    this.seen = {at: '', found: new Map()}
    /** @type {[number, string][]} from which event on it stood how */
    this.statuses = []
    /** @type {[number, number][]} */
    this.tokens = []
    /** @type {Map<number, Span|null>} what has used tokens, by the event that says so; null once its cost is known */
    this.spenders = new Map()
    /** @type {number[]} */
    this.failures = []
    /** @type {Map<string, {from: string, path: string, to: string, n: number}>} ways that were taken, each as it was first */
    this.ways = new Map()
    /** @type {number[]} events that cannot be had */
    this.lost = []
    /** Of a fork the last event that it has of its origin: what is up to there was done, and paid for, by that. */
    this.parted = 0
    this.started = false
    /** @type {Row|null} the event by which it was started: before, it waited to be taken */
    this.startedBy = null
    this.cancelling = false
    this.diverged = ''
    this.final = ''
    this.version = 0
  }

  /** @returns {number} the number of the last event */
  get last() {
    return this.rows.length
  }

  /** Whether its last event has come. */
  get ended() {
    return this.root.n1 !== Infinity
  }

  /**
   * @param {Row[]} rows in their order; those that are known are left out
   * @param {boolean} [all] whether these are all that there are: an event that is missing among them cannot be had
   */
  take(rows, all = false) {
    for (const row of rows) {
      while (all && row.n > this.rows.length + 1) this.lose(row.time)
      if (row.n !== this.rows.length + 1) continue
      this.rows.push(row)
      this.apply(row)
    }
    this.version++
  }

  /** The next event cannot be had: something stands for it, so that others are where their numbers say. @param {number} time */
  lose(time) {
    const n = this.rows.length + 1
    const row = {n, sequence: 0, time, type: LOST, path: '', iteration: 0, attempt: 0, key: '', name: '', outcome: '', tokens: 0}
    this.lost.push(n)
    this.rows.push(row)
    this.apply(row)
  }

  /** @param {Row} row */
  apply(row) {
    if (row.n === 1) {
      Object.assign(this.root, {n0: 1, t0: row.time, name: row.name})
    }
    const kind = INTENTS[row.type]
    if (kind) this.begin(row, kind)
    else if (row.type === 'effect.cancelled') this.cancel(row)
    else if (CLOSES[row.type]) this.close(row, CLOSES[row.type])
    else this.fact(row)
    if (row.tokens && row.n > this.parted) {
      const before = this.tokens.at(-1)?.[1] ?? 0
      this.tokens.push([row.n, before + row.tokens])
    }
    if (row.outcome === 'failed') this.failures.push(row.n)
    const status = this.stand()
    if (status !== this.statuses.at(-1)?.[1]) this.statuses.push([row.n, status])
  }

  /** @param {Row} row */
  fact(row) {
    switch (row.type) {
      case 'run.start':
        this.started = true
        this.startedBy = row
        break
      case 'cancel.requested': this.cancelling = true; break
      case 'run.diverged': this.diverged = row.outcome === 'waiting:code' ? row.outcome : 'diverged'; break
      case 'run.claimed': this.diverged = ''; break
      case 'run.quarantined': this.final = 'quarantined'; break
      case 'run.failed': this.final = 'failed'; break
      case 'run.end':
        this.final = row.outcome
        Object.assign(this.root, {n1: row.n, t1: row.time, outcome: row.outcome})
        for (const one of this.open.values()) Object.assign(one, {n1: row.n, t1: row.time, outcome: 'cancelled'})
        this.open.clear()
        this.standing.clear()
        break
      case 'node.enter': this.enter(row); break
      case 'node.exit': {
        const node = this.nodes.get(`${row.path}#${row.iteration}`)
        if (node) {
          Object.assign(node, {n1: row.n, t1: row.time, outcome: row.outcome})
          const going = (this.going.get(row.path) ?? []).filter((one) => one !== node)
          if (going.length) this.going.set(row.path, going)
          else this.going.delete(row.path)
        }
        break
      }
      case 'node.retry': this.owner(row).retries++; break
      case 'route': {
        const name = `${row.path} ${row.name}`
        if (this.ways.has(name)) break
        const way = {from: last(row.path), path: row.path, to: row.name, n: row.n}
        this.ways.set(name, way)
        this.way(way)
        break
      }
    }
  }

  /** @param {Row} row */
  enter(row) {
    const id = `${row.path}#${row.iteration}`
    const node = span('node', row.path, row.iteration, row.name || last(row.path), '', row.n, row.time)
    this.put(node, this.above(row.path))
    this.nodes.set(id, node)
    this.latest.set(row.path, node)
    this.going.set(row.path, [...(this.going.get(row.path) ?? []), node])
    for (const [by, name] of /** @type {[Map<string, Span[]>, string][]} */ ([[this.byPath, row.path], [this.byPattern, patternOf(row.path)]])) {
      const same = by.get(name)
      if (same) same.push(node)
      else by.set(name, [node])
    }
    const same = /** @type {Span[]} */ (this.byPath.get(row.path))
    if (same.length === 1) this.part(row.path, same)
  }

  /** @param {Row} row @param {Span['kind']} kind */
  begin(row, kind) {
    const name = row.name || kind
    const one = span(kind, row.path, row.iteration, name, row.key, row.n, row.time)
    if (row.outcome === 'caller') one.outcome = 'caller'
    const first = TRY.test(row.key) ? this.firstTries.get(row.key.replace(TRY, '!step')) : undefined
    this.put(one, this.owner(row), first)
    if (one.fan && row.key.endsWith('!step')) this.firstTries.set(row.key, one)
    this.about[row.n] = one
    const at = `${kind} ${row.key}`, other = this.open.get(at)
    if (other) this.stands(other, -1)
    this.open.set(at, one)
    this.stands(one, 1)
  }

  /** Count an open one for the status of the run. @param {Span} one @param {number} by */
  stands(one, by) {
    const how = standing(one)
    this.standing.set(how, (this.standing.get(how) ?? 0) + by)
  }

  /** @param {Row} row @param {string} kind */
  close(row, kind) {
    const at = `${kind} ${row.key}`
    const one = this.open.get(at)
    if (!one) return
    this.open.delete(at)
    this.stands(one, -1)
    this.about[row.n] = one
    const outcome = {answered: 'ok', '': 'ok'}[row.outcome] ?? row.outcome
    Object.assign(one, {n1: row.n, t1: row.time, outcome, tokens: row.tokens})
    if (row.tokens) this.spenders.set(row.n, one)
  }

  /** What events have cost, by their number: that counts for whatever is around them, once. @param {Record<string, Cost>} costs */
  charge(costs) {
    for (const [n, cost] of Object.entries(costs)) {
      for (let one = this.spenders.get(Number(n)); one; one = one.parent) {
        one.cost = added(one.cost, cost)
      }
      if (this.spenders.has(Number(n))) this.spenders.set(Number(n), null)
    }
  }

  /** An effect of whatever kind. @param {Row} row */
  cancel(row) {
    for (const kind of Object.values(INTENTS)) this.close(row, kind)
  }

  /** @param {Span} one @param {Span} parent @param {Span} [first] of a repeated try, or the wait before it, the first try */
  put(one, parent, first) {
    one.parent = parent
    one.depth = parent.depth + 1
    parent.children.push(one)
    if (first) {
      // An item of a fan-out is one member of it, however often it is tried.
      one.item = first
      one.fan = first.fan
      if (first.tries === NONE) first.tries = []
      first.tries.push(one)
      return
    }
    // Most paths have no index behind that of their parent.
    if (one.path.indexOf('[', parent.path.length) < 0) return
    const pattern = parent.path + patternOf(one.path.slice(parent.path.length))
    const name = `${parent.id} ${one.kind} ${pattern}`
    let fan = this.fans.get(name)
    if (!fan) {
      fan = span('fan', pattern, 0, one.kind === 'node' ? one.name : last(pattern) || one.kind, '', one.n0, one.t0)
      Object.assign(fan, {id: `fan ${name}`, parent, depth: one.depth, members: []})
      this.fans.set(name, fan)
    }
    fan.members.push(one)
    one.fan = fan
  }

  /** The members of a fan-out that had begun behind an event. @param {{members: Span[]}} fan @param {number} n */
  begun({members}, n) {
    return members[members.length - 1].n0 <= n ? members : members.slice(0, firsts(members.length, (i) => members[i].n0 <= n))
  }

  /** The node that a span belongs to, and all of its executions that had begun behind an event. @param {Span|null} span @param {number} n */
  executions(span, n) {
    let node = span
    while (node && node.kind !== 'node') node = node.parent
    return {node, members: node ? this.begun({members: this.byPattern.get(patternOf(node.path)) ?? [node]}, n) : []}
  }

  /**
   * The last try of an item that had begun behind an event, or the wait before the next one.
   * @param {Span} first the first try, or what is tried once only
   * @param {number} n
   */
  lastTry(first, n) {
    return first.tries.findLast((one) => one.n0 <= n && (one.kind !== 'timer' || one.n1 > n)) ?? first
  }

  /** Have a fan-out say how its members stood behind an event: from the first start to the last end. @param {Span} fan @param {number} n */
  survey(fan, n) {
    /** @type {Map<string, number>} */
    const counts = new Map()
    let n1 = 0, t1 = 0
    for (const member of this.begun(fan, n)) {
      const one = this.lastTry(member, n), outcome = this.outcomeAt(one, n)
      counts.set(outcome, (counts.get(outcome) ?? 0) + 1)
      n1 = Math.max(n1, one.n1)
      t1 = Math.max(t1, one.t1)
    }
    const [outcome] = [...counts.keys()].sort((a, b) => foremost(a) - foremost(b))
    return Object.assign(fan, {n1, t1, counts, outcome})
  }

  /** What stands for a span among its siblings behind an event: its fan-out, if that is large enough. @param {Span} one @param {number} n @returns {Span|null} */
  fanOf({fan}, n) {
    return fan && (fan.members[FAN_MIN - 1]?.n0 ?? Infinity) <= n ? fan : null
  }

  /** The node that something at a row's place belongs to: its own, or the nearest above. @param {Row} row */
  owner(row) {
    return this.nodes.get(`${row.path}#${row.iteration}`) ?? this.above(row.path)
  }

  /** The nearest node above a path, rather one that goes on. @param {string} path */
  above(path) {
    for (const one of above(path)) {
      const found = this.going.get(one)?.at(-1) ?? this.latest.get(one)
      if (found) return found
    }
    return this.root
  }

  /**
   * What a fork was not at work, if events up to n are looked at: from the last event of its origin until it went on.
   * @param {number} n @param {number} until when it has not gone on yet, that is now
   */
  away(n, until) {
    if (this.parted < 2 || n < this.parted || !this.rows[this.parted - 1]) return null
    const start = this.rows[this.parted - 1].time
    const end = n > this.parted ? this.rows[this.parted]?.time ?? until : until
    return end > start ? {start, end} : null
  }

  /** When a span began, if events up to n are looked at: a fork when it went on, and before that, with its origin. @param {Span} one @param {number} n */
  beganAt(one, n) {
    return one.kind === 'run' && this.parted > 1 && n > this.parted ? this.rows[this.parted]?.time ?? one.t0 : one.t0
  }

  /** How long a span has lasted, in milliseconds, a run from its start, without the time that a fork was away. @param {Span} one @param {number} n @param {number} until */
  lasted(one, n, until) {
    const started = one.kind === 'run' && this.startedBy && this.startedBy.n <= n ? this.startedBy.time : 0
    const begin = Math.max(this.beganAt(one, n), started), end = one.n1 <= n ? one.t1 : until
    const away = this.away(n, until)
    return end - begin - (away && begin <= away.start && end >= away.end ? away.end - away.start : 0)
  }

  /** How the run stands now. */
  stand() {
    if (this.final) return this.final
    if (this.diverged) return this.diverged
    const paused = this.standing.get('paused')
    if (!this.started && !paused && !this.cancelling) return 'accepted'
    if (this.cancelling) return 'cancelling'
    return paused ? 'paused' : waiting(STANDINGS.find((how) => this.standing.get(how))) || 'running'
  }

  /** How it stood behind an event. @param {number} n */
  statusAt(n) {
    return before(this.statuses, n)?.[1] ?? 'accepted'
  }

  /** Tokens used up to an event. @param {number} n */
  tokensAt(n) {
    return before(this.tokens, n)?.[1] ?? 0
  }

  /** How a span stood behind an event. @param {Span} one @param {number} n */
  outcomeAt(one, n) {
    if (one.n1 <= n || one.kind === 'fan') return one.outcome
    if (one.kind === 'run') return this.statusAt(n)
    if (this.final && n >= this.last) return 'cancelled'
    if (one.kind === 'human') return 'waiting:human'
    if (one.kind === 'pause') return 'paused'
    if (one.kind === 'node') {
      let at = STANDINGS.length
      for (const child of one.children) if (child.n0 <= n && child.n1 > n && child.kind !== 'node') at = Math.min(at, STANDINGS.indexOf(standing(child)))
      return waiting(STANDINGS[at]) || 'running'
    }
    return ['signal', 'timer'].includes(one.kind) || one.outcome === 'caller' ? 'waiting' : 'running'
  }

  /**
   * Spans as lines, those that had begun behind an event; what is inside of a folded one is left out. Of a fan-out there
   * is one line, and below it a member that is looked at.
   * @param {number} n
   * @param {Set<string>} folded
   * @param {Span[]} [looked] members of fan-outs that have a line
   * @returns {Span[]}
   */
  lines(n, folded, looked = []) {
    /** @type {Span[]} */
    const found = []
    const stack = [this.root]
    while (stack.length) {
      const one = /** @type {Span} */ (stack.pop())
      if (!(one.n0 <= n)) continue
      found.push(one)
      if (folded.has(one.id)) continue
      const {children} = one
      for (let i = children.length - 1; i >= 0; i--) {
        const fan = this.fanOf(children[i], n)
        if (!fan) stack.push(children[i])
        else if (fan.members[0] === children[i]) stack.push(...looked.filter((member) => member.fan === fan), this.survey(fan, n))
      }
    }
    return found
  }

  /** The members of fan-outs, as they are at an event, that a span is in, from the outermost to the innermost. @param {Span|null} span @param {number} n */
  membersAround(span, n) {
    /** @type {Span[]} */
    const found = []
    for (let one = span; one; one = one.parent) if (this.fanOf(one, n)) found.unshift(one)
    return found
  }

  /** Relate it to a drawing, by the ids of its nodes. @param {string[]} ids */
  draw(ids) {
    if (ids === this.ids) return
    this.ids = ids
    this.known = new Set(ids)
    this.patterns = new Map(ids.map((id) => [patternOf(id), id]))
    this.seen.at = ''
    for (const one of [this.drawn, this.parts, this.taken]) one.clear()
    for (const [path, spans] of this.byPath) this.part(path, spans)
    for (const way of this.ways.values()) this.way(way)
  }

  /** The node of the drawing that stands for a path, or ''. @param {string} path */
  idOf(path) {
    let id = this.drawn.get(path)
    if (id === undefined) {
      const name = last(path)
      id = this.known?.has(path) ? path : this.patterns?.get(patternOf(path)) ?? (this.known?.has(name) ? name : '')
      this.drawn.set(path, id)
    }
    return id
  }

  /** @param {string} path @param {Span[]} spans its executions */
  part(path, spans) {
    const id = this.idOf(path), parts = this.parts.get(id)
    if (parts) parts.push(spans)
    else if (id) this.parts.set(id, [spans])
  }

  /** @param {{from: string, path: string, to: string, n: number}} way */
  way({from, path, to, n}) {
    const up = patternOf(path.slice(0, path.lastIndexOf('/') + 1))
    const find = (/** @type {string} */ name) => this.patterns?.get(up + name) ?? (this.known?.has(name) ? name : '')
    const edge = `${find(from)} ${find(to)}`
    if (!this.taken.has(edge)) this.taken.set(edge, n)
  }

  /** The edges of the drawing that had been taken behind an event, `from to`. @param {number} n */
  takenBy(n) {
    return new Set([...this.taken].filter(([, first]) => first <= n).map(([edge]) => edge))
  }

  /** The execution of a node of the drawing, or of a path, that had begun last behind an event. @param {string} id @param {number} n */
  latestOf(id, n) {
    /** @type {Span|undefined} */
    let found
    for (const spans of this.parts.get(id) ?? [this.byPattern.get(patternOf(id)) ?? NONE]) {
      const one = spans[firsts(spans.length, (i) => spans[i].n0 <= n) - 1]
      if (one && one.n0 > (found?.n0 ?? 0)) found = one
    }
    return found
  }

  /** What began last of what goes on: an effect, or else a node. */
  get current() {
    /** @type {Span|undefined} */
    let found
    for (const one of this.open.values()) found = one
    if (!found) for (const same of this.going.values()) for (const one of same) if (one.n0 > (found?.n0 ?? 0)) found = one
    return found
  }

  /**
   * What the nodes of the drawing looked like behind an event, by id: how one stands, and how often it was entered.
   * @param {number} n
   */
  shown(n) {
    const at = `${this.version} ${n}`
    if (at === this.seen.at) return this.seen.found
    /** @type {Map<string, {status: string, times: number}>} */
    const found = new Map()
    for (const [id, parts] of this.parts) {
      let times = 0, status = ''
      for (const spans of parts) {
        const begun = firsts(spans.length, (i) => spans[i].n0 <= n)
        if (!begun) continue
        const one = this.outcomeAt(spans[begun - 1], n)
        if (!times || urgency(one) <= urgency(status)) status = one
        times += begun
      }
      if (times) found.set(id, {status, times})
    }
    this.seen = {at, found}
    return found
  }

  /** The span that an event began, ended, or happened in. @param {number} n @returns {Span|null} */
  spanOf(n) {
    const row = this.rows[n - 1]
    return row ? this.about[n] ?? (row.path ? this.owner(row) : this.root) : null
  }
}

const URGENCY = ['running', 'failed', 'cancelled', 'ok', 'skipped']

/** @param {string} status */
const urgency = (status) => URGENCY.indexOf(status) + (URGENCY.includes(status) ? 0 : URGENCY.length)

/** Of the outcomes of many the one that is said of all comes first: what goes on, what waits, what went wrong. @param {string} outcome */
export const foremost = (outcome) => ['running', 'waiting', 'failed', 'timeout', 'expired', 'cancelled', 'ok'].indexOf(outcome.split(':')[0]) + 1 || 9

/** How an open span has its run, or its node, stand. @param {Span} one */
function standing({kind, name, outcome}) {
  if (kind === 'human' || kind === 'signal' || kind === 'child') return `waiting:${kind}`
  if (kind === 'tool' && outcome === 'caller') return 'waiting:tool'
  if (kind === 'timer' && WAITING_TIMERS.includes(name)) return 'waiting:timer'
  if (kind === 'timer' && COMPANION_TIMERS.includes(name)) return ''
  return kind === 'pause' ? 'paused' : 'busy'
}

/** What something waits for that stands so; '' if something is done meanwhile. @param {string} [how] */
const waiting = (how = '') => (how.startsWith('waiting') ? how : '')

/**
 * @param {Span['kind']} kind @param {string} path @param {number} iteration @param {string} name
 * @param {string} key @param {number} n @param {number} time
 * @returns {Span}
 */
function span(kind, path, iteration, name, key, n, time) {
  return {
    id: `${n}`, kind, path, iteration, name, key, n0: n, n1: Infinity, t0: time, t1: Infinity,
    outcome: '', tokens: 0, cost: null, depth: 0, retries: 0, children: [], parent: null, members: NONE, counts: null, fan: null, item: null, tries: NONE,
  }
}

/** The last of pairs whose number is not behind n. @template T @param {[number, T][]} pairs @param {number} n */
const before = (pairs, n) => pairs[firsts(pairs.length, (i) => pairs[i][0] <= n) - 1]

/** How many of so many things, in their order, hold before the first that does not. @param {number} count @param {(index: number) => boolean} hold */
function firsts(count, hold) {
  let low = 0, high = count
  while (low < high) {
    const middle = (low + high) >> 1
    if (hold(middle)) low = middle + 1
    else high = middle
  }
  return low
}

/**
 * The paths above a path, the nearest first: without the last word of an aspect, the aspect, the index, the segment.
 * @param {string} path
 */
function* above(path) {
  while (path) {
    const at = path.lastIndexOf('/') + 1
    const head = path.slice(0, at)
    let segment = path.slice(at)
    const colon = segment.indexOf(':')
    if (colon >= 0) segment = segment.slice(0, Math.max(segment.lastIndexOf('.'), colon))
    else if (segment.endsWith(']')) segment = segment.slice(0, segment.indexOf('['))
    else {
      path = head.slice(0, -1)
      if (path) yield path
      continue
    }
    path = head + segment
    yield path
  }
}

/** A path without its indices: that of the node of the definition. @param {string} path */
export const patternOf = (path) => (path.includes('[') ? path.replace(/\[\d*\]/g, '[]') : path)

/** The indices by which a member of a fan-out differs from the others; of anything else those of its path. @param {Span} one */
export const placeOf = ({path, fan}) => (path.slice(fan?.parent?.path.length ?? 0).match(/\d+(?=\])/g) ?? []).map(Number)

/** The name in a path's last segment. @param {string} path */
export function last(path) {
  const plain = path.slice(path.lastIndexOf('/') + 1).split(':', 1)[0].split('[', 1)[0]
  if (plain === '%') return ''
  try {
    return decodeURIComponent(plain)
  } catch {
    return plain
  }
}
