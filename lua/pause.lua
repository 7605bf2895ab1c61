-- Lets no slot start for a while, and then fewer than the limits allow. Only ever lengthens the pause that is there.
--
-- Atomic, because two processes that learn of different refusals must leave the longer pause, and count the refusals in a row.
--
-- KEYS[1] replay   the last message of the sender's stream, and its answer
-- KEYS[2] state    of the whole upstream
-- KEYS[3] state    of the scope that is paused; none where the whole upstream is
-- ARGV[1] integers of 8 bytes: number, previous, known, latest, as for book.lua; recovery (µs after the pause in which calls come
--         slower), cause (0 a refusal, 1 a spending limit, 2 a ban), memory (µs after the pause in which a refusal is the next in a row),
--         started (stamp of the refused call, or 0); then waits (µs from now), by how many refusals came in a row; the last stands for more
-- ARGV[2] clock    in tests only
-- Returns integers of 8 bytes: number, now, until: stamp; first: 1 where this refusal began it
-- Errors: OUTDATED, DUPLICATE, GARBAGE, as for book.lua
-- Cost: O(1)
local recovery, cause, memory, started = a[5], a[6], a[7], a[8] ~= 0 and a[8]

-- Read.
local state = KEYS[3] and read_state(call('GET', KEYS[3]), KEYS[3]) or upstream
local pause = state.pause and state.pause[5] > now and state.pause

-- Decide. A refusal while a pause lasts, or of a call from before its end, belongs to the same incident; another, before the pause is
-- forgotten, is the next.
local same = pause and (pause[1] > now or (started and started < pause[1]))
local refusals = pause and pause[3] + (same and 0 or 1) or 1
local stop = now + a[min(8 + refusals, #a)]
if pause then
  if pause[1] > now then cause = max(cause, pause[4]) end
  stop, recovery = max(stop, pause[1]), max(recovery, pause[2])
end
local forgotten = max(stop + max(recovery, memory), pause and pause[5] or 0)

-- Write. Remembered last: a pause that is entered twice does less harm than one that is not.
local body = struct.pack('<i8i8', stop, same and 0 or 1)
if forgotten <= now then return reply(body) end
state.pause = { stop, recovery, refusals, cause, forgotten }
save(state, now)
return remember(forgotten - now, body)
