-- Takes slots that nobody wants out of their logs.
--
-- Atomic, because a message that comes twice must act once: a second removal would take somebody else's equal stamp.
--
-- KEYS[1] seen     the sender's last message
-- KEYS[2] clock    by how much log time differs from the server's clock
-- KEYS[3..] logs   one list of start times for each log
-- ARGV[1] now      stamp, or empty for the server's clock
-- ARGV[2] number   of this message in the sender's stream
-- ARGV[3] previous number of the last message that the sender knows to be remembered, or 0
-- ARGV[4] memory   µs for which to remember the message after the last of its slots has started
-- ARGV[5..] for each slot: start (stamp), units in each log
-- Returns {now}: stamp
-- Errors: OUTDATED a later message of this sender has been seen; DUPLICATE two have its name; GARBAGE an entry is no time
-- Cost: O(slots), each near the tail of its log; one that lies deeper than 10,000 entries is kept
local seen_key, clock_key, now = KEYS[1], KEYS[2], ARGV[1]
local number, previous, memory = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local keys, args = KEYS, ARGV

local expires
now, expires = log_time(now, clock_key)

local MAX_MEMORY = 60000000

-- Read.
local seen, outdated, remembered, last_number = recall(redis.call('GET', seen_key), now, number)
local error_reply = outdated or foreign_name(previous, last_number)
if error_reply then return error_reply end
if seen then return { now } end

local width, last = #keys - 1, now
for at = 5, #args, width do last = math.max(last, tonumber(args[at])) end

-- Write. As long as a slot may count: a second removal while it does would take another's. Remembered first, since an entry that
-- is no time ends this halfway.
remember(seen_key, number, now, math.max(now + math.min(last - now + memory, MAX_MEMORY), remembered), expires, { now })
for at = 5, #args, width do
  for i = 3, #keys do take_out(keys[i], args[at], tonumber(args[at + i - 2]), expires) end
end
return { now }
