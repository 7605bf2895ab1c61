-- Lets no slot start for a while, and then fewer than the limits allow. Only ever lengthens the hold that is there.
--
-- Atomic, because two processes that learn of different refusals must leave the longer hold, and count the refusals in a row.
--
-- KEYS[1] hold     on a scope, or on the whole upstream
-- ARGV[1] now      stamp, or empty for the server's clock
-- ARGV[2] recovery µs after the hold in which calls come slower
-- ARGV[3] cause    0 a refusal, 1 a spending limit, 2 a ban
-- ARGV[4] memory   µs after the hold in which a refusal is the next in a row
-- ARGV[5..] waits  µs from now, by how many refusals came in a row; the last stands for more
-- Returns {now, held}: stamp; µs from now until the hold ends
-- Errors: none
-- Cost: O(1)
local hold_key = KEYS[1]
local now, expires = clock(ARGV[1])
local recovery, cause, memory = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local keys, args = KEYS, ARGV

-- Read.
local hold = read_hold(redis.call('GET', hold_key), now)

-- Decide. A refusal while a hold lasts belongs to the same incident; one after it, before it is forgotten, is the next.
local refusals = 1
if hold then refusals = hold.refusals + (hold.stop <= now and 1 or 0) end
local stop = now + tonumber(args[math.min(4 + refusals, #args)])
if hold then
  if hold.stop > now then cause = math.max(cause, hold.cause) end
  stop, recovery = math.max(stop, hold.stop), math.max(recovery, hold.recovery)
end
local forgotten = math.max(stop + math.max(recovery, memory), hold and hold.forgotten or 0)

-- Write.
if forgotten <= now then return { now, 0 } end
redis.call('SET', hold_key, cmsgpack.pack({ stop, recovery, refusals, cause, forgotten }))
if expires then redis.call('PEXPIRE', hold_key, text(math.ceil((forgotten - now) / 1000))) end
return { now, math.max(stop - now, 0) }
