-- Ends pauses before their time: by hand, with the rates that were lowered; or because a call that looked was served.
--
-- Atomic, because what was told before the release, and comes later, must find its mark.
--
-- KEYS[1] replay   the last message of the sender's stream, and its answer
-- KEYS[2] state    of the whole upstream
-- KEYS[3] state    of the scope that is released; none where the whole upstream is, with all its scopes
-- ARGV[1] doubles of 8 bytes: number, previous, known, latest, as for book.lua; served (start of the call that looked, or 0: by hand)
-- ARGV[2] clock    in tests only
-- Returns integers of 8 bytes: number, now
-- Errors: OUTDATED, DUPLICATE, GARBAGE, as for book.lua
-- Cost: O(1)
local MANY, served = 256, a[5]

-- Read.
local state = KEYS[3] and read_state(call('GET', KEYS[3]), KEYS[3]) or upstream
local pause, since = state.pause, now - 1000 * LEAP

-- Decide.
if served ~= 0 then
  local first_look = pause_of(state) and pause[6] + pause[9]
  if not first_look or pause[8] <= first_look or served < first_look then return reply('') end
end

-- Write.
state.releases = releases_at(state.releases, since) or { 0, 0 }
if served ~= 0 then
  state.pause, state.releases[2] = false, max(state.releases[2], served)
else
  state.pause, state.rate, state.slow, state.releases[1] = false, false, false, now
end
local of_all = releases_at(upstream.releases, since) or { 0, 0 }
if #of_all - 2 >= 2 * MANY then
  -- Without those that are kept as the clock may be set back.
  of_all = { of_all[1], of_all[2], unpack(releases_at(upstream.releases, now) or {}, 3) }
end
if #of_all - 2 >= 2 * MANY then of_all = { of_all[1], of_all[2], '', now } else
  of_all[#of_all + 1], of_all[#of_all + 2] = KEYS[3] or '', now
end
upstream.releases = of_all
save(upstream, now)
if state ~= upstream then save(state, now) end
return remember(MAX_MEMORY, '')
