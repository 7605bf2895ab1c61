// The callers of one process: each calls again as soon as it may.
//
// The driver says by environment variables what to call and through which Redis. A process says that it is ready,
// begins when it is told a line, and ends when its stdin does.
'use strict'

const dgram = require('node:dgram')

const env = name => Number(process.env[name])

exports.redis = { host: '127.0.0.1', port: env('REDIS_PORT') }
exports.quota = env('QUOTA')
exports.windowMs = 1000 * env('WINDOW_SECONDS')

// `attempt(send)` waits until it may call, and calls `send`.
exports.run = (what, attempt) => {
  const upstream = dgram.createSocket('udp4')
  let told = false

  const keepCalling = async caller => {
    const call = `${process.env.PROCESS} ${caller}`
    const send = async () => upstream.send(call)
    for (;;) {
      try {
        await attempt(send)
      } catch (error) {
        if (!told) console.log(`error ${String(error.message).split('\n')[0]}`)
        told = true
        await new Promise(resolve => setTimeout(resolve, 100))
      }
    }
  }

  process.stdin.once('data', () => {
    for (let caller = 0; caller < env('CALLERS'); caller++) keepCalling(caller)
  })
  process.stdin.on('end', () => process.exit())
  upstream.connect(env('UPSTREAM_PORT'), '127.0.0.1', () => console.log(`ready ${Date.now() / 1000} 0 ${what}`))
}

// A package and its version, as it is installed.
exports.version = name => `${name} ${require(`${name}/package.json`).version}`
