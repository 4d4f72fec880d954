// A worker of a Treadle pool, without any library: lines of JSON on stdin and stdout (docs/protocol.md).
'use strict'
const readline = require('node:readline')

const say = (message) => process.stdout.write(JSON.stringify(message) + '\n')
const running = new Map() // id of a run → a way to stop it

const tasks = {
  async 'thumbs.make' ({ source, widths }, run) {
    const made = []
    for (const [index, width] of widths.entries()) {
      run.check()
      await new Promise((resolve) => setTimeout(resolve, 10)) // where the picture would be scaled
      made.push(`${source}@${width}`)
      run.progress(index + 1, widths.length, `${width} px`)
    }
    run.log('info', `made ${made.length} of ${source}`)
    return { made, language: 'JavaScript' }
  },
  async 'thumbs.refuse' ({ why }) {
    throw new Error(why)
  }
}

async function work ({ id, task, args }) {
  const stop = { asked: false }
  running.set(id, stop)
  const run = {
    check: () => { if (stop.asked) throw Object.assign(new Error('cancelled'), { cancelled: true }) },
    progress: (done, total, note) => say({ type: 'progress', id, done, total, note }),
    log: (level, message) => say({ type: 'log', id, level, message })
  }
  const beat = setInterval(() => say({ type: 'heartbeat', id }), 1000)
  try {
    if (!(task in tasks)) return say({ type: 'outcome', id, status: 'fail', error: `no task ${task} here` })
    say({ type: 'outcome', id, status: 'succeeded', result: await tasks[task](args, run) })
  } catch (error) {
    if (error.cancelled) return say({ type: 'outcome', id, status: 'cancelled' })
    say({ type: 'outcome', id, status: 'failed', error: { type: error.name, message: error.message, trace: error.stack } })
  } finally {
    clearInterval(beat)
    running.delete(id)
  }
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const order = JSON.parse(line)
  if (order.type === 'hello') say({ type: 'ready', protocol: 1 })
  if (order.type === 'run') work(order)
  if (order.type === 'cancel' && running.has(order.id)) running.get(order.id).asked = true
}).on('close', () => process.exit(0))
