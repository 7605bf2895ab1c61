-- Calendar windows: units come back at boundaries that the ask names, all at once. Nothing starts for a guard before a boundary, and units
-- of before it count for a guard after it. A boundary is somewhere between two moments. Joined behind bucket.lua.

-- So many boundaries are named. A start is looked for so often where one rule moves it to where another does not allow it. For so long
-- nobody starts outside all boundaries: the answer tells of the server's clock, and the next ask names others.
local NAMED, ROUNDS, PUT_OFF = 4, 16, 2 * SECOND

-- Whether now lies outside all boundaries that are named: what counts is not known.
local function is_outside(calendar)
  return now < calendar[1].from or now >= calendar[NAMED].from - calendar.guard
end

-- The earliest start after an entry that has to count no more, where there is one.
local function after_boundary(calendar, start, entry)
  local guard, before_last, last = calendar.guard, calendar[NAMED - 1], calendar[NAMED]
  if is_outside(calendar) then return max(start, now + PUT_OFF) end
  if entry then
    local ends
    for i = NAMED, 1, -1 do
      if entry < calendar[i].from - guard then ends = calendar[i].to end
    end
    if not ends then
      -- Further away than anybody is granted a start: as if all windows were as long.
      local length = max(last.from - before_last.from, 1)
      ends = last.to + (floor((entry + guard - last.from) / length) + 1) * length
    end
    start = max(start, ends + guard)
  end
  for i = 1, NAMED do
    local boundary = calendar[i]
    if start < boundary.to and boundary.from - guard <= start then start = boundary.to end
  end
  return start
end

-- Units that started before this count no more in a calendar window now, as far as is known from the boundaries that are named.
local function since_boundary(calendar)
  local since = -9e15
  for i = 1, NAMED do
    if calendar[i].to + calendar.guard <= now then since = max(since, calendar[i].from - calendar.guard) end
  end
  return since
end

-- How far ahead is booked in these logs, `limit` at most: where it is not known what counts, nobody who is far from the server books behind
-- the time for which nobody starts. And whether any has calendar windows.
local function limit_of_calendars(logs, limit)
  local has_any = false
  for _, log in ipairs(logs) do
    has_any = has_any or log.has_calendar
    for _, term in ipairs(log.has_calendar and log.terms or {}) do
      if term.calendar and is_outside(term.calendar) then limit = min(limit, now + PUT_OFF - 1) end
    end
  end
  return limit, has_any
end
