-- What refusals say that an upstream allows: as many as it served in the window before them. Joined behind log.lua.
--
-- A rate: factor in millionths, all of them where the refusals are not believed yet; longest span of the terms that it is for; end of the
-- pause, from then on it stays for so many µs; factor before the incident; its refused calls; their units; start of the last; what was
-- served, in millionths, before refusals that were not believed; and before this incident; when that was told first.

-- A lowered rate stays for so many windows; where they are long, for ten minutes or for one window. A refusal that brings no other news
-- lowers it by a part of it, and no evidence further than to the least. After several refusals at once calls come slower for so many
-- windows, for ten minutes at most.
local WINDOWS, LONG, PART, SLOW_WINDOWS, LEAST = 20, 600000000, 16, 3, floor(FULL / 64)

-- How long a window is as a whole, about, of which quota, span, and how long it has counted stand at `at`: one that was just reset has
-- counted for less long.
local function length_at(at) return max(a[at + 2], floor(a[at + 1] / 2)) end

-- Whether a window refused nobody before, as more were served since then than it had room for, by far: `sent` units count in it now, of
-- which `units` were refused. What is `known` of the window then is what was served.
local function had_room(before, known, log_key, latest, length, quota, sent, units)
  if before[8] <= latest - length then return false end
  local served, since = sent - units, newer_than(log_key, before[3] - 1) - newer_than(log_key, latest) - units
  local lapsed
  if known then
    lapsed = max(since, 0) + before[7] + ceil(before[10] * quota / FULL) - served
  else
    lapsed = newer_than(log_key, before[8] - length) - newer_than(log_key, latest - length)
  end
  -- An upstream may let calls in evenly, as a bucket does.
  local evenly = floor(served * (latest - before[8]) / length) + 1
  lapsed = max(lapsed, 0)
  return since > lapsed + floor(lapsed / 8) + floor(quota / 64) + evenly
end

-- The rate after a refusal of so many calls and units, and for how long calls come slower after the pause; nil where it says nothing.
-- From `at` on stand count of the windows, and for each quota, span and how long the upstream counts. One call alone that was refused is
-- not believed, unless it happens again while the rate would last; and where the window is longer than ten minutes nothing may show that
-- it had room between.
local function rate_after(before, started, is_same, calls, units, log_key, at)
  local active = before and lapse_of.rate(before) > now and before or nil
  -- A call that was under way before the pause was over saw the same, however late it is answered.
  local incident = active and (is_same or started < active[3]) and active or nil
  local latest = incident and max(incident[8], started) or started
  if incident then calls, units = incident[6] + calls, incident[7] + units end

  -- A call that started after the pause, be it to look whether that still holds.
  local is_another = active and started >= active[3] or false
  -- Of the windows of up to ten minutes, and of longer ones that may have refused those before, too, the fullest is probably meant.
  local most, served, span, window, had = -1, nil, nil, nil, true
  for i = at + 1, at + 3 * a[at], 3 do
    local quota, length, whole = max(a[i], 1), a[i + 2], length_at(i)
    local sent = max(newer_than(log_key, latest - length) - newer_than(log_key, latest), 0)
    local full = floor(sent * FULL / quota)
    -- A log that holds the refused calls no more says nothing of what was served.
    if sent >= units then
      local room, is_known = false, active and active[2] == a[i + 1]
      if active and whole > LONG and (is_another or not is_known) then
        room = (incident and not is_known) or had_room(active, is_known, log_key, latest, length, quota, sent, units)
      end
      if (had and not room) or (had == room and full > most) then
        most, served, span, window, had = full, floor((sent - units) * FULL / quota), a[i + 1], whole, room
      end
    end
  end
  if not served then return nil, 0 end

  local before_it, doubted = FULL, 0
  if incident then
    before_it, doubted = incident[5], incident[9]
  elseif active then
    before_it = factor_of(active)
  end
  if active and active[1] == FULL then
    local is_doubt = not incident
    if window > LONG then is_doubt = is_another and active[2] == span and not had end
    if is_doubt then doubted = max(active[9], active[10]) end
  end
  local is_confirmed = not had and (before_it < FULL or doubted > 0) or (incident and incident[1] < FULL)
  local is_believed = is_confirmed or calls > 1
  local told = max(served, doubted)
  if told >= before_it then told = before_it - floor(before_it / PART) end
  if not is_believed and before_it < FULL then return nil, 0 end
  local factor = is_believed and max(told, floor(before_it / 2), LEAST) or FULL
  local hold = min(window * WINDOWS, max(LONG, window))
  local rate = { factor, span, now, hold, before_it, calls, units, latest, doubted, max(served, 1), incident and incident[11] or now }
  return rate, calls > 1 and min(window * SLOW_WINDOWS, LONG) or 0
end
