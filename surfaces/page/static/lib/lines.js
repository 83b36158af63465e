// Lines: the differences between two texts, by their longest common subsequence of lines. Pure.

const LINES_MAX = 3_000
/** Longer texts are shown one after the other. */

/** @param {string} before @param {string} after @returns {{sign: ' '|'+'|'-', line: string}[]} */
export function compared(before, after) {
  const left = before.split('\n'), right = after.split('\n')
  if (left.length > LINES_MAX || right.length > LINES_MAX) {
    return [...left.map((line) => ({sign: /** @type {const} */ ('-'), line})), ...right.map((line) => ({sign: /** @type {const} */ ('+'), line}))]
  }
  const width = right.length + 1
  const common = new Uint16Array((left.length + 1) * width)
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      common[i * width + j] = left[i] === right[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1])
    }
  }
  const found = []
  let i = 0, j = 0
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      found.push({sign: /** @type {const} */ (' '), line: left[i++]})
      j++
    } else if (j >= right.length || (i < left.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      found.push({sign: /** @type {const} */ ('-'), line: left[i++]})
    } else {
      found.push({sign: /** @type {const} */ ('+'), line: right[j++]})
    }
  }
  return found
}
