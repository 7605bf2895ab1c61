-- Counts what a home's logs hold, without changing anything.
--
-- Atomic, because the counts of several logs must be of one moment.
--
-- KEYS[1] hold     no start before this stamp
-- KEYS[2..] logs   one list of start times for each log
-- ARGV[1] now      stamp, or empty for the server's clock
-- ARGV[2..] for each log: count of terms, then quota and span (µs) of each
-- Returns {now, (used, next)...}: stamp; for each term units that count, and µs from now until one more may start
-- Errors: none
-- Cost: O(log of the entries) for each term
local hold_key = KEYS[1]
local now = clock(ARGV[1])
local keys, args = KEYS, ARGV

-- Read.
local hold = tonumber(redis.call('GET', hold_key) or nil)

-- Decide.
local floor = math.max(now, hold or now)
local out, at = { now }, 2
for i = 2, #keys do
  local terms, retention, quota
  terms, retention, quota, at = read_terms(args, at + 1, tonumber(args[at]))
  for _, term in ipairs(terms) do
    local log = open_log(keys[i], { term }, 1)
    out[#out + 1] = newer_than(keys[i], now - term.span)
    out[#out + 1] = earliest(log, floor, 1) - now
  end
end
return out
