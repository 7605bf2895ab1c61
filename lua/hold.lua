-- Lets no slot start for a while. Only ever lengthens the hold that is there.
--
-- Atomic, because two processes that learn of different holds must leave the longer one.
--
-- KEYS[1] hold     no start before this stamp
-- ARGV[1] now      stamp, or empty for the server's clock
-- ARGV[2] wait     µs from now
-- Returns {now}: stamp
-- Errors: none
-- Cost: O(1)
local hold_key = KEYS[1]
local now, expires = clock(ARGV[1])
local wait = tonumber(ARGV[2])

-- Read.
local hold = tonumber(redis.call('GET', hold_key) or nil)

-- Decide.
local until_stamp = now + wait
if wait > 0 and until_stamp > (hold or now) then
  -- Write.
  redis.call('SET', hold_key, text(until_stamp))
  if expires then redis.call('PEXPIRE', hold_key, text(math.ceil(wait / 1000))) end
end
return { now }
