-- Lets no slot start for a while, and then fewer than the limits allow. Only ever lengthens the hold that is there.
--
-- Atomic, because two processes that learn of different refusals must leave the longer hold, and count the refusals in a row.
--
-- KEYS[1] seen     the sender's last hold or lesson, and its answer
-- KEYS[2] told     by the upstream, of a scope, or of the whole upstream
-- KEYS[3] clock    by how much log time differs from the server's clock
-- ARGV[1] now      stamp, or empty for the server's clock
-- ARGV[2] number   of this message in the sender's stream
-- ARGV[3] recovery µs after the hold in which calls come slower
-- ARGV[4] cause    0 a refusal, 1 a spending limit, 2 a ban
-- ARGV[5] memory   µs after the hold in which a refusal is the next in a row
-- ARGV[6] started  stamp of the refused call's start, or empty
-- ARGV[7..] waits  µs from now, by how many refusals came in a row; the last stands for more
-- Returns {now, held, first}: stamp; µs from now until the hold ends; 1 where this refusal began it
-- Errors: OUTDATED a later hold or lesson of this sender has been seen; GARBAGE the correction is no time
-- Cost: O(1)
local seen_key, told_key, clock_key, now = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local number, recovery, cause = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local memory, started = tonumber(ARGV[5]), tonumber(ARGV[6])
local keys, args = KEYS, ARGV

local expires
now, expires = log_time(now, clock_key)

local MAX_MEMORY = 60000000

-- Read.
local seen, outdated, remembered = recall(redis.call('GET', seen_key), now, number)
if outdated then return outdated end
if seen then return { now, math.max(seen[3] - now, 0), seen[4] } end
local told = read_told(redis.call('GET', told_key), now)
local hold = told.hold

-- Decide. A refusal while a hold lasts, or of a call from before its end, belongs to the same incident; another, before the
-- hold is forgotten, is the next.
local same = hold and (hold.stop > now or (started and started < hold.stop))
local refusals = hold and hold.refusals + (same and 0 or 1) or 1
local stop = now + tonumber(args[math.min(6 + refusals, #args)])
if hold then
  if hold.stop > now then cause = math.max(cause, hold.cause) end
  stop, recovery = math.max(stop, hold.stop), math.max(recovery, hold.recovery)
end
local forgotten = math.max(stop + math.max(recovery, memory), hold and hold.forgotten or 0)

-- Write. Remembered last: a hold that is entered twice does less harm than one that is not.
local first = same and 0 or 1
if forgotten > now then
  told.hold = { stop = stop, recovery = recovery, refusals = refusals, cause = cause, forgotten = forgotten }
  write_told(told_key, told, now, expires)
  local stamp = math.max(math.min(forgotten, now + MAX_MEMORY), remembered)
  remember(seen_key, number, now, stamp, expires, { stop, first })
end
return { now, math.max(stop - now, 0), first }
