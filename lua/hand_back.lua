-- Takes slots that nobody wants out of their logs.
--
-- Atomic, because a message that comes twice must act once: a second removal would take somebody else's equal stamp.
--
-- KEYS[1] seen     the sender's last message
-- KEYS[2..] logs   one list of start times for each log
-- ARGV[1] now      stamp, or empty for the server's clock
-- ARGV[2] number   of this message in the sender's stream
-- ARGV[3] memory   µs for which to remember the message after the last of its slots has started
-- ARGV[4..] for each slot: start (stamp), units in each log
-- Returns {now}: stamp
-- Errors: OUTDATED a later message of this sender has been seen; GARBAGE a log holds what is no time
-- Cost: O(slots), each near the tail of its log; one that lies deeper than 10,000 entries is kept
local seen_key = KEYS[1]
local now, expires = clock(ARGV[1])
local number, memory = tonumber(ARGV[2]), tonumber(ARGV[3])
local keys, args = KEYS, ARGV

local MAX_MEMORY, MAX_DEPTH = 60000000, 10000

-- Read.
local seen, outdated, remembered = recall(redis.call('GET', seen_key), now, number)
if outdated then return outdated end
if seen then return { now } end

local logs, last = {}, now
for i = 2, #keys do
  local newest = stamp_of(redis.call('LINDEX', keys[i], -1), keys[i])
  logs[i - 1] = { key = keys[i], keep = expires and kept_ms(keys[i], newest) or 0 }
end
for at = 4, #args, 1 + #logs do last = math.max(last, tonumber(args[at])) end

-- Write. As long as a slot may count: a second removal while it does would take another's. Remembered first, since an entry that
-- is no time ends this halfway.
remember(seen_key, number, now, math.max(now + math.min(last - now + memory, MAX_MEMORY), remembered), expires, { now })
local at = 4
while args[at] do
  local start = tonumber(args[at])
  for i, log in ipairs(logs) do
    -- LREM walks from the tail: what lies deep, or is not there, would cost it milliseconds. A slot kept breaks no limit.
    local newer, units = newer_than(log.key, start), tonumber(args[at + i])
    local found = newer <= MAX_DEPTH and stamp_of(redis.call('LINDEX', log.key, -newer - 1), log.key) == start
    -- A count of zero would mean all of them.
    if found and units > 0 then redis.call('LREM', log.key, -units, args[at]) end
  end
  at = at + 1 + #logs
end
for _, log in ipairs(logs) do
  local newest = expires and stamp_of(redis.call('LINDEX', log.key, -1), log.key)
  if newest and log.keep > 0 then expire_log(log.key, newest, log.keep) end
end
return { now }
