-- Lets no slot start for a while, and then fewer than the limits allow. Only ever lengthens the hold that is there.
--
-- Atomic, because two processes that learn of different refusals must leave the longer hold, and count the refusals in a row.
--
-- KEYS[1] told     by the upstream, of a scope, or of the whole upstream
-- ARGV[1] now      stamp, or empty for the server's clock
-- ARGV[2] recovery µs after the hold in which calls come slower
-- ARGV[3] cause    0 a refusal, 1 a spending limit, 2 a ban
-- ARGV[4] memory   µs after the hold in which a refusal is the next in a row
-- ARGV[5] started  stamp of the refused call's start, or empty
-- ARGV[6..] waits  µs from now, by how many refusals came in a row; the last stands for more
-- Returns {now, held, first}: stamp; µs from now until the hold ends; 1 where this refusal began it
-- Errors: none
-- Cost: O(1)
local told_key = KEYS[1]
local now, expires = clock(ARGV[1])
local recovery, cause, memory, started = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local keys, args = KEYS, ARGV

-- Read.
local told = read_told(redis.call('GET', told_key), now)
local hold = told.hold

-- Decide. A refusal while a hold lasts, or of a call from before its end, belongs to the same incident; another, before the
-- hold is forgotten, is the next.
local same = hold and (hold.stop > now or (started and started < hold.stop))
local refusals = hold and hold.refusals + (same and 0 or 1) or 1
local stop = now + tonumber(args[math.min(5 + refusals, #args)])
if hold then
  if hold.stop > now then cause = math.max(cause, hold.cause) end
  stop, recovery = math.max(stop, hold.stop), math.max(recovery, hold.recovery)
end
local forgotten = math.max(stop + math.max(recovery, memory), hold and hold.forgotten or 0)

-- Write.
if forgotten <= now then return { now, 0, same and 0 or 1 } end
told.hold = { stop = stop, recovery = recovery, refusals = refusals, cause = cause, forgotten = forgotten }
write_told(told_key, told, now, expires)
return { now, math.max(stop - now, 0), same and 0 or 1 }
