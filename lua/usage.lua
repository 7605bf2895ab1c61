-- Counts what a home's logs hold, without changing anything.
--
-- Atomic, because the counts of several logs must be of one moment.
--
-- KEYS[1] told     by the upstream, of this scope
-- KEYS[2] told_all of the whole upstream; the same where there is no scope
-- KEYS[3] clock    by how much log time differs from the server's clock
-- KEYS[4..] logs   one list of start times for each log
-- ARGV[1] now      stamp, or empty for the server's clock
-- ARGV[2..] for each log: count of terms, then quota and span (µs) of each
-- Returns {now, (used, foreign, next)...}: stamp; for each term units that count, units that others have used, and µs from now
--         until one more may start
-- Errors: GARBAGE a log holds what is no time
-- Cost: O(log of the entries) for each term
local told_key, told_all_key, clock_key, now = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local keys, args = KEYS, ARGV

now = log_time(now, clock_key)

-- Read.
local heeded = heed(redis.call('GET', told_key), redis.call('GET', told_all_key), told_key, told_all_key, now)

-- Decide.
local out, at = { now }, 2
for i = 4, #keys do
  local terms, retention, quota
  terms, retention, quota, at = read_terms(args, at + 1, tonumber(args[at]), heeded.widened)
  for _, term in ipairs(terms) do
    local log = open_log(keys[i], { term }, 1, heeded)
    out[#out + 1] = newer_than(keys[i], now - term.span)
    out[#out + 1] = term.foreign and term.foreign[1].units or 0
    out[#out + 1] = earliest(log, now, 1) - now
  end
end
return out
