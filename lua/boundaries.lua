-- Boundaries of calendar windows that processes name: where they differ for one log, it is quiet from before the earlier to after the
-- later. A state keeps of each: log, span of the term, from and to by the server's clock, and when it counts no more: it is past for
-- everybody, even where the clock was set back since. Joined behind calendar.lua.

-- Reads a calendar of a log from some integers at `at`: each boundary as wide as others named it, and by log time. What counts no more may
-- be kept or not: it widens none. Takes note of those that are not past where an ask `names` them.
local function read_calendar(list, at, state, key, span, names)
  local calendar = { guard = list[at] }
  local function is_of(known, k) return known[k] == key and known[k + 1] == span end

  local function widen(by)
    local known = state.boundaries
    for i = 1, NAMED do
      local from, to, next = list[at + 2 * i - 1], list[at + 2 * i], at + 2 * min(i, NAMED - 1)
      local length = list[next + 1] - list[next - 1]
      for k = 1, #known, BOUNDARY do
        local first, last = min(from, known[k + 2]), max(to, known[k + 3])
        -- Taken to be one where both together are shorter than half a window.
        if is_of(known, k) and known[k + 4] > now and 2 * (last - first) < length then from, to = first, last end
      end
      calendar[i] = { from = from + by, to = to + by }
    end
  end

  -- What is named by a wrong clock is not kept: nothing is granted by it.
  if names and list[at + 1] + correction <= now and now < list[at + 2 * NAMED - 1] + correction then
    widen(0)
    for i = 1, NAMED do
      local from, to, kept, covered, known = calendar[i].from, calendar[i].to, {}, false, state.boundaries
      local lapse = to + correction + calendar.guard + 1000 * LEAP
      local latest = lapse
      for k = 1, #known, BOUNDARY do
        covered = covered or (is_of(known, k) and known[k + 2] == from and known[k + 3] == to and known[k + 4] >= lapse)
        if is_of(known, k) and from <= known[k + 2] and known[k + 3] <= to then
          latest = max(latest, known[k + 4])
        else
          for part = k, k + BOUNDARY - 1 do kept[#kept + 1] = known[part] end
        end
      end
      if lapse > now and not covered then
        for _, part in ipairs({ key, span, from, to, latest }) do kept[#kept + 1] = part end
        state.boundaries, state.is_news = kept, true
      end
    end
  end
  widen(correction)
  return calendar, at + 2 * NAMED + 1
end
