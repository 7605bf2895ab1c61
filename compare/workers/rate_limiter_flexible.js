// Calls through the queue of rate-limiter-flexible.
'use strict'

const Redis = require('ioredis')
const { RateLimiterQueue, RateLimiterRedis } = require('rate-limiter-flexible')
const { quota, redis, run, version, windowMs } = require('./callers')

const storeClient = new Redis(redis)
const limiter = new RateLimiterRedis({ storeClient, points: quota, duration: windowMs / 1000 })
const queue = new RateLimiterQueue(limiter)
storeClient.once('ready', () => {
  run(`${version('rate-limiter-flexible')}, ${version('ioredis')}`, async send => {
    await queue.removeTokens(1)
    await send()
  })
})
