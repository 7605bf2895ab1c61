-- Lets no slot start for a while, and then fewer than the limits allow, as far as what was refused is evidence of that: see rate.lua.
--
-- Atomic, because two processes that learn of different refusals must leave the longer pause, and count the refusals in a row.
--
-- KEYS[1] replay   the last message of the sender's stream, and its answer
-- KEYS[2] state    of the whole upstream
-- KEYS[3] state    of the scope that is paused; none where the whole upstream is
-- KEYS[..] log     that the refused calls were charged in, where there are windows to read it by
-- ARGV[1] doubles of 8 bytes: number, previous, known, latest, as for book.lua; recovery (µs after the pause in which calls come
--         slower), cause (0 an overload, 1 a refusal, 2 a spending limit, 3 a ban), memory (µs after the pause in which another may
--         follow in a row), started (stamp of the refused call, or 0), told (µs for which the upstream told to wait, where that is more),
--         status (of the response, or 0), calls (that were refused; 0 where they are no evidence), units (that these were charged), count
--         (of windows that the upstream may count by); then for each of them: quota and span (µs) of a term, how long the upstream counts
--         (µs); then waits (µs from now), by how many refusals came in a row: the last stands for more
-- ARGV[2] clock    in tests only
-- Returns integers of 8 bytes: number, now, until: stamp; first: 1 where this refusal began it; rate: millionths of the quotas that the
--         evidence leaves
-- Errors: OUTDATED, DUPLICATE, GARBAGE, as for book.lua
-- Cost: O(log of the entries) for each window
-- For so long after a pause another refusal is the next in a row, however short the pause was: unless its call started as long after the
-- pause as that had lasted, and a whole quota between, more than a few units, as far back as a log is sure to be kept.
local ROW, FEW, SURE = 60000000, 10, 10000000
local OVERLOAD, REFUSAL = 0, 1

local recovery, cause, memory, started, told, status = a[5], a[6], a[7], a[8] ~= 0 and a[8], a[9], a[10]
local calls, units, first_wait = a[11], a[12], 14 + 3 * a[13]

-- Read.
local has_log = a[13] > 0
local has_scope = #KEYS > (has_log and 3 or 2)
local state = has_scope and read_state(call('GET', KEYS[3]), KEYS[3]) or upstream
local released, own = released_above(state), state.releases or { 0, 0 }
-- What refused a call from before a release says nothing any more.
if started and started < max(released, own[1], own[2]) then return reply(struct.pack('<i8i8i8', now, 0, FULL)) end
local pause = pause_of(state)

-- Decide. A refusal while a pause lasts, or of a call from before its end, belongs to the same incident; another is the next in a row,
-- where its call started within a minute, or twice as long as the wait, or what bars us came before: between others calls were served.
local same = pause and (pause[1] > now or (started and started < pause[1])) or false
local follows = pause and (pause[4] > REFUSAL or (started or now) <= pause[8] + max(pause[2], 2 * pause[9], ROW))
if has_log and follows and pause[4] <= REFUSAL and (started or now) >= pause[1] + pause[9] then
  local quota, shortest = 0, math.huge
  for i = 14, 13 + 3 * a[13], 3 do
    if length_at(i) < shortest then quota, shortest = a[i], length_at(i) end
  end
  local since = max(pause[1], now - shortest - SURE)
  local served = newer_than(KEYS[#KEYS], since - 1) - newer_than(KEYS[#KEYS], (started or now) - 1)
  follows = served < max(quota, FEW)
end
local rate
if has_log and calls > 0 then
  local before, slower = rate_since(state, released), 0
  rate, slower = rate_after(before, started or now, same, calls, units, KEYS[#KEYS], 13)
  recovery = max(recovery, slower)
end
-- Overloads are counted apart from all others.
local before, kind = (same or follows) and pause, cause == OVERLOAD and 2 or 1
local counts = { before and before[3] or 0, before and before[11] or 0 }
counts[kind] = same and max(counts[kind], 1) or counts[kind] + 1
local wait = a[min(first_wait - 1 + counts[kind], #a)]
local stop, ends, again, began = now + wait, now + told, wait, now
if pause then
  if pause[1] > now then cause = max(cause, pause[4]) end
  stop, recovery = max(stop, pause[1]), max(recovery, pause[2])
end
if same then began, status, ends, again = pause[6], pause[7], max(ends, pause[8]), max(again, pause[9]) end
ends = max(ends, stop)
local forgotten = max(ends + max(recovery, memory), pause and pause[5] or 0)

-- Write. Remembered last: a pause that is entered twice does less harm than one that is not.
local body = struct.pack('<i8i8i8', stop, same and 0 or 1, rate and rate[1] or FULL)
local lasts = forgotten
if forgotten > now then state.pause = { stop, recovery, counts[1], cause, forgotten, began, status, ends, again, 0, counts[2] } end
if rate then
  rate[3] = stop
  state.rate, lasts = rate, max(lasts, lapse_of.rate(rate))
end
if lasts <= now then return reply(body) end
save(state, now)
return remember(lasts - now, body)
