-- Enters what others use of the same quota, as the upstream reports it.
--
-- Atomic, because what the log allows must be read in the moment in which the difference is entered.
--
-- KEYS[1] replay   the last message of the sender's stream, and its answer
-- KEYS[2] state    of the whole upstream
-- KEYS[3] state    of the log's scope; none where that is the whole upstream
-- KEYS[..] log     that is reported of
-- ARGV[1] integers of 8 bytes: number, previous, known, latest, as for book.lua; started (stamp of the call, or 0 for now); late (µs: calls
--         that started so long after it had not arrived when the upstream counted); then for each report: quota and span (µs) of a
--         term, window (µs) for which the upstream counts, units remaining, µs until they reset
-- ARGV[2] clock    in tests only
-- Returns integers of 8 bytes: number, now, outside: units now entered, of the term with the most
-- Errors: OUTDATED, DUPLICATE, GARBAGE, as for book.lua
-- Cost: O(log of the entries) for each report
local STEPS = 16
local started, late = a[5] ~= 0 and a[5] or now, a[6]

-- Read.
local log_key = KEYS[#KEYS]
local state = #KEYS == 4 and read_state(call('GET', KEYS[3]), KEYS[3]) or upstream

-- Decide. More remaining than the log allows is ignored. Units are entered for a span at the most.
local steps = {}
for i = 1, #state.outside, 4 do
  local key, span, units, ends = unpack(state.outside, i, i + 3)
  if ends > now - 1000 * LEAP then steps[#steps + 1] = { key = key, span = span, units = units, lapse = ends } end
end
local outside, entered, longest, counted = 0, false, 0, min(started + late, now)
for i = 7, #a, 5 do
  local quota, span, window, remaining, reset = unpack(a, i, i + 4)
  longest = max(longest, span)
  -- Ends closer together than `grid` are one, so that a term has few steps.
  local grid = floor(span / STEPS)
  -- After so long, entries of before may be forgotten and would look like outside use: all that came since count.
  local used = newer_than(log_key, now - span)
  if counted + grid >= now then used = newer_than(log_key, counted - window) - newer_than(log_key, counted) end
  local units, ends = quota - used - remaining, now + min(reset + grid, span)
  -- And what they use by the time that ours arrive, at the pace of a whole span.
  units = min(units + ceil(units / STEPS), quota)
  -- What the upstream counted a window ago counts no more.
  if units > 0 and ends > now and counted + window > now then
    -- Of one term, in order of their ends: each has fewer units than the one before.
    local kept, at, outlasted = {}, nil, false
    for _, step in ipairs(steps) do
      local same = step.key == log_key and step.span == span
      local outlasts = same and step.lapse > now and step.units >= units and step.lapse + grid >= ends
      outlasted = outlasted or outlasts
      if same and step.lapse > ends then at = at or #kept + 1 end
      -- A step of no more units that ends no later says nothing any more.
      if not same or outlasts or step.units > units or step.lapse > ends + grid then kept[#kept + 1] = step end
    end
    if not outlasted then
      table.insert(kept, at or #kept + 1, { key = log_key, span = span, units = units, lapse = ends })
      steps, entered = kept, true
    end
    outside = max(outside, units)
  end
end

-- Write.
if entered then
  state.outside = {}
  for i, step in ipairs(steps) do
    local at = 4 * i - 3
    state.outside[at], state.outside[at + 1], state.outside[at + 2], state.outside[at + 3] = step.key, step.span, step.units, step.lapse
  end
end
if entered then save(state, now) end
local body = struct.pack('<i8', outside)
-- Who learned nothing may learn more from the same message later.
if outside == 0 then return reply(body) end
return remember(longest, body)
