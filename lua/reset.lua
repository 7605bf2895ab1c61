-- Forgets what counts in some logs of a scope, by hand, with what was learned of it; seats, pauses, and slowing down by hand stay.
--
-- Atomic, because who remembers what is forgotten must find the mark that says so: it would take that for lost.
--
-- KEYS[1] replay   the last message of the sender's stream, and its answer
-- KEYS[2] state    of the whole upstream
-- KEYS[3] state    of the scope; none where the logs are the whole upstream's own
-- KEYS[..] log     of the scope, each that is forgotten
-- ARGV[1] doubles of 8 bytes: number, previous, known, latest, as for book.lua; scoped (1 where KEYS[3] is a scope's state)
-- ARGV[2] clock    in tests only
-- Returns integers of 8 bytes: number, now
-- Errors: OUTDATED, DUPLICATE, GARBAGE, as for book.lua; but a log whose entries make no sense is forgotten like any other
-- Cost: O(entries)
local first, is_forgotten = 3 + a[5], {}

-- Read.
local state = a[5] == 1 and read_state(call('GET', KEYS[3]), KEYS[3]) or upstream
-- Of a loss that matters no more nobody is told again.
local loss, newest, counts = state.loss and lapse_of.loss(state.loss) > now and state.loss or { 0, 0, 0 }, 0, 0
for i = 1, #state.lives, LIFE do counts = max(counts, state.lives[i + 3] > now and state.lives[i + 2] or 0) end
for i = first, #KEYS do
  newest = max(newest, floor(tonumber(redis.pcall('LINDEX', KEYS[i], '-1')) or 0))
  is_forgotten[KEYS[i]] = true
end

-- Decide.
local function of_others(list, width)
  local kept = {}
  for i = 1, #list, width do
    for part = i, is_forgotten[list[i]] and 0 or i + width - 1 do kept[#kept + 1] = list[part] end
  end
  return kept
end

-- Write.
for i = first, #KEYS do call('DEL', KEYS[i]) end
state.cold, state.outside, state.levels = of_others(state.cold, 6), of_others(state.outside, TOLD), of_others(state.levels, LEVEL)
state.lives = of_others(state.lives, LIFE)
state.rate, state.claims = false, {}
state.loss = { now, now, max(now, min(newest, now + MAX_MEMORY), loss[2], loss[3] or 0) }
for i = 4, #loss do state.loss[i] = loss[i] end
if counts > 0 then
  for i = 4, 6 do state.loss[i] = loss[i] or 0 end
  state.loss[5] = max(state.loss[5], state.loss[3] + counts)
end
save(state, now)
return remember(MAX_MEMORY, '')
