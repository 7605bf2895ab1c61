-- Enters what others use of the same quota, as the upstream reports it.
--
-- Atomic, because what the log allows must be read in the moment in which the difference is entered.
--
-- KEYS[1] replay   the last message of the sender's stream, and its answer
-- KEYS[2] state    of the whole upstream
-- KEYS[3] state    of the log's scope; none where that is the whole upstream
-- KEYS[..] log     that is reported of
-- ARGV[1] doubles of 8 bytes: number, previous, known, latest, as for book.lua; started (stamp of the call, or 0 for now); late (µs: calls
--         that started so long after it had not arrived when the upstream counted); then for each report: quota and span (µs) of a
--         term, window (µs) for which the upstream counts, units remaining, µs until they reset; where the span is negative it is that of
--         a bucket, and more follows as for book.lua
-- ARGV[2] clock    in tests only
-- Returns integers of 8 bytes: number, now, outside: units that others use, of the term with the most
-- Errors: OUTDATED, DUPLICATE, GARBAGE, as for book.lua
-- Cost: O(log of the entries) for each report
local started, late = a[5] ~= 0 and a[5] or now, a[6]

-- Read.
local log_key = KEYS[#KEYS]
local state = #KEYS == 4 and read_state(call('GET', KEYS[3]), KEYS[3]) or upstream

-- Decide. More remaining than the log allows is nobody's use. A reset is a span away at the most.
local all = {}
for i = 1, #state.outside, TOLD do
  local told = { unpack(state.outside, i, i + TOLD - 1) }
  if told[8] + told[2] > now - 1000 * LEAP then all[#all + 1] = told end
end
local outside, entered, longest, counted = 0, false, 0, min(started + late, now)
local began = min(started, now)
local at, filled_up = 7, false
while a[at] do
  local quota, span, window, remaining, reset = unpack(a, at, at + 4)
  local bucket
  at = at + 5
  local is_calendar = span < 0 and a[at] == 2
  if is_calendar then
    span, at = -span, at + 10
  elseif span < 0 then
    span, bucket, at = -span, { interval = a[at + 1], depth = a[at + 2] }, at + 3
    if counted + window > now then
      local units = fill_others({ key = log_key, state = state, runs = 0 }, bucket, 1000 * window, remaining, began, counted)
      outside, filled_up = max(outside, units), filled_up or units > 0
    end
  end
  longest = max(longest, span)
  -- After so long, entries of before may be forgotten and would look like outside use: all that came since count. Else all that may have
  -- counted when the upstream did.
  local used = newer_than(log_key, now - span)
  if counted + floor(span / 16) >= now then used = newer_than(log_key, began - window) - newer_than(log_key, counted) end
  local units, lapse = max(quota - used - remaining, 0), now + min(reset, span)
  -- What the upstream counted a window ago counts no more.
  if not (bucket or is_calendar) and lapse > now and counted + window > now then
    local known, place
    for t, told in ipairs(all) do
      if told[1] == log_key and told[2] == span then known, place = told, t end
    end
    if known and known[8] + span <= now then known = nil end
    -- What a later call was told stays; and nothing is entered until others are known to use a part of the quota.
    local is_news = units > 0
    if known then is_news = known[3] <= began end
    local is_same = known and known[3] == began and math.abs(lapse - known[8]) <= floor(span / 2)
    if known and known[3] == began and not is_same and lapse < known[8] then is_news = false end
    outside = max(outside, units)
    if is_news then
      local left, most, since = min(remaining, quota), max(units, known and known[6] or 0), known and known[7] or now
      -- Of calls that started together the one that was counted last was told least, whichever is answered last.
      if is_same then left, units, lapse = min(left, known[4]), max(units, known[5]), max(lapse, known[8]) end
      all[place or #all + 1] = { log_key, span, began, left, units, most, since, lapse, reset >= window and 1 or 0 }
      entered = true
    end
  end
end

-- Write.
if entered then
  state.outside = {}
  for i, told in ipairs(all) do
    for part = 1, TOLD do state.outside[TOLD * (i - 1) + part] = told[part] end
  end
end
entered = entered or filled_up
if entered then save(state, now) end
local body = struct.pack('<i8', outside)
-- Who learned nothing may learn more from the same message later.
if not entered then return reply(body) end
return remember(longest, body)
