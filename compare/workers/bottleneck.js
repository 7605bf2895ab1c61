// Calls through bottleneck, clustered; with a reservoir, or (`min-time`) with a pause between any two calls.
'use strict'

const Bottleneck = require('bottleneck')
const Redis = require('ioredis')
const { quota, redis, run, version, windowMs } = require('./callers')

const reservoir = { reservoir: quota, reservoirRefreshAmount: quota, reservoirRefreshInterval: windowMs }
const pace = process.argv[2] === 'min-time' ? { minTime: windowMs / quota } : reservoir

const limiter = new Bottleneck({ id: 'upstream', datastore: 'ioredis', Redis, clientOptions: redis, ...pace })
limiter.ready().then(() => {
  run(`${version('bottleneck')}, ${version('ioredis')}`, send => limiter.schedule(send))
})
