-- Buckets: units drain out of them one after another. How full one is, its level, is kept beside its log: the start of its newest unit,
-- the nanoseconds after that until it is empty; the same where each unit takes as long to drain as a lowered rate leaves it, and how long
-- that is, or 0; how many entries of the log that start then are in it; and until which start something came
-- into it that the log does not explain. A state keeps before each: its log, interval and depth of the bucket, in ns. Joined behind
-- list.lua.

-- No level is counted any higher than MOST. A slot leaves no room behind, when it is handed back, that has more than DEEP newer entries, of
-- which those that start together count as no more than TOGETHER. So many entries are read at a time that may start together.
local MOST, DEEP, TOGETHER, READ = 9e15, 1000, 16, 16

-- A level as of then: where that is later, some of it has drained.
local function drained(level, start)
  if start <= level.at then return level end
  local nanos = 1000 * (start - level.at)
  local left, slowed = max(level.left - nanos, 0), max(level.slowed - nanos, 0)
  return { at = start, left = left, slowed = slowed, by = level.by, counted = 0, since = level.since }
end

-- How high a level is where that is left of its bucket: the same units take less where more is left than when they came, but never more.
local function height(level, left)
  if left.interval >= level.by then return max(level.left, level.slowed) end
  return max(ceil(level.slowed * (left.interval / level.by)), level.left)
end

-- A level read where so much is left of its bucket.
local function read_by(level, bucket, left)
  local by = left.interval == bucket.interval and 0 or left.interval
  return { at = level.at, left = level.left, slowed = height(level, left), by = by, counted = level.counted, since = level.since }
end

-- How long each unit of a level takes by the rate that it was read by, which takes so long at the full one.
local function slower_of_level(level, interval) return level.by == 0 and interval or level.by end

-- A level after some units that start then, each of which takes so long to drain.
local function filled(level, start, units, interval)
  local before, by = drained(level, start), slower_of_level(level, interval)
  local left, slowed = min(before.left + units * interval, MOST), min(before.slowed + units * by, MOST)
  local counted = before.counted + (start < before.at and 0 or units)
  return { at = before.at, left = left, slowed = slowed, by = level.by, counted = counted, since = level.since }
end

-- A level with the newest `count` entries of a log; nil where those are too many for `deep`, if that is given. Calls of many units are long
-- runs of equal entries, whose ends are looked for.
local function filled_with(level, key, count, interval, deep)
  local left, step = deep or math.huge, READ
  while count > 0 and left >= 0 do
    local found = call('LRANGE', key, format('%d', -count), format('%d', -max(count - step, 0) - 1))
    local read, from = #found, 1
    if found[read] == found[1] then
      local start = stamp_of(found[1], key)
      local newer = read == count and 0 or min(newer_than(key, start), count - 1)
      level, left, step = filled(level, start, count - newer, interval), left - min(count - newer, TOGETHER), READ
      count = newer
    else
      for i = 2, read + 1 do
        -- The last of them may go on.
        if found[i] ~= found[from] and (i <= read or read == count) then
          level, left = filled(level, stamp_of(found[from], key), i - from, interval), left - min(i - from, TOGETHER)
          from = i
        end
      end
      count, step = count - from + 1, min(2 * step, PIECE)
    end
  end
  return left >= 0 and level or nil
end

-- What is known of a level, with the entries that came since.
local function caught_up(level, key, interval)
  local newest = stamp_of(call('LINDEX', key, '-1'), key)
  if not newest or newest < level.at then return level end
  local newer = newest > level.at and newer_than(key, level.at) or 0
  if stamp_of(call('LINDEX', key, format('%d', -newer - level.counted - 1)), key) == level.at then
    local missed = newer_than(key, level.at - 1) - newer - level.counted
    level = filled(level, level.at, missed, interval)
  end
  return filled_with(level, key, newer, interval)
end

-- The level of a bucket that nothing is known of but the log: it was full, as far back as that matters.
local function presumed(key, bucket)
  local length = call('LLEN', key) - (mark_of(call('LINDEX', key, '0')) and 1 or 0)
  if length == 0 then return { at = 0, left = 0, slowed = 0, by = 0, counted = 0, since = 0 } end
  local count = min(length, 2 * floor(bucket.depth / bucket.interval))
  local oldest = stamp_of(call('LINDEX', key, format('%d', -count)), key)
  local level = { at = oldest, left = bucket.depth, slowed = 0, by = 0, counted = 1, since = oldest }
  level = filled_with(level, key, count - 1, bucket.interval)
  level.counted = newer_than(key, level.at - 1)
  return level
end

local function read_level(levels, i)
  local at, left, slowed, by, counted, since = unpack(levels, i + 3, i + 8)
  return { at = at, left = left, slowed = slowed, by = by, counted = counted, since = since }
end

-- Where a level lies in a state; nil where nothing is known of it.
local function place_of_level(log, interval)
  local levels = log.state.levels
  for i = 1, #levels, LEVEL do
    if levels[i] == log.key and levels[i + 1] == interval then return i end
  end
end

-- How full the bucket of a term is, with what is booked now.
local function level_of(log, term)
  local levels, bucket = term.levels, term.bucket
  if not levels then
    local i, known = place_of_level(log, bucket.interval), log.state.levels
    if i then
      known = caught_up(read_level(known, i), log.key, bucket.interval)
    else
      known = presumed(log.key, bucket)
    end
    levels = { [0] = known }
    term.levels, term.filled = levels, 0
  end
  while term.filled < log.runs do
    local run = term.filled + 1
    local units = log.upto[run] - (log.upto[run - 1] or 0)
    levels[run] = filled(read_by(levels[run - 1], bucket, term.left), log.added[run], units, bucket.interval)
    term.filled = run
  end
  return levels[log.runs]
end

-- The earliest start of some units by a level, where that is left of its bucket. More than it holds start when it is empty.
local function with_room(level, left, units)
  return level.at + ceil((height(level, left) - max(left.depth - units * left.interval, 0)) / 1000)
end

-- Units that are in a bucket, the one that drains included, where that is left of it.
local function units_in(level, left)
  return min(ceil(max(height(level, left) - 1000 * (now - level.at), 0) / left.interval), 4294967295)
end

local function keep_level(log, bucket, level)
  local levels = log.state.levels
  local i = place_of_level(log, bucket.interval) or #levels + 1
  levels[i], levels[i + 1], levels[i + 2] = log.key, bucket.interval, max(levels[i + 2] or 0, bucket.depth)
  levels[i + 3], levels[i + 4], levels[i + 5] = level.at, level.left, level.slowed
  levels[i + 6], levels[i + 7], levels[i + 8] = level.by, level.counted, level.since
  log.state.is_news = true
end

-- Keeps the levels of which nothing was known but the logs: to presume one reads twice as many entries as the bucket holds.
local function keep_presumed(logs)
  for _, log in ipairs(logs) do
    for _, term in ipairs(log.buckets) do
      local level = not place_of_level(log, term.bucket.interval) and level_of(log, term)
      if level and level.at > 0 then keep_level(log, term.bucket, level) end
    end
  end
end

-- Takes units that start at a time out of a log again, and out of its buckets as far as the entries since prove it.
local function hand_back(log, start, units)
  local levels, known = log.state.levels, {}
  for i = 1, #levels, LEVEL do
    if levels[i] == log.key then
      known[#known + 1] = { bucket = { interval = levels[i + 1], depth = levels[i + 2] }, level = read_level(levels, i) }
    end
  end
  for _, of in ipairs(known) do of.level = caught_up(of.level, log.key, of.bucket.interval) end
  local taken, newer = take_out(log.key, start, units, ceil(log.retention / 1000))
  for _, of in ipairs(taken > 0 and known or {}) do
    local level, interval = of.level, of.bucket.interval
    local since = filled_with({ at = 0, left = 0, slowed = 0, by = level.by, counted = 0 }, log.key, newer, interval, DEEP)
    if not since then break end
    local from = start > level.at and 0 or taken
    -- It may have drained before what is left in it came, of which the log says nothing.
    local out = start > level.since and from or 0
    level.left = max(level.left - out * interval, since.left - 1000 * (level.at - since.at), 0)
    local slower = slower_of_level(level, interval)
    -- No promise hangs on this one: what it says of lower rates need not be proved.
    level.slowed = max(level.slowed - from * slower, min(since.slowed - 1000 * (level.at - since.at), level.slowed), 0)
    -- Before its newest unit it may have been emptier than that.
    if level.left == 0 then level.since = level.at end
    if start == level.at then level.counted = max(level.counted - from, 0) end
    keep_level(log, of.bucket, level)
  end
end

-- An upstream told that so many units were left of its bucket, which fills within so many ns, when it counted a call that had started
-- then, and none from after `counted`. What ours does not explain is of others, and fills it as well. Says how many units that are.
local function fill_others(log, bucket, fills, remaining, started, counted)
  local interval = bucket.interval
  local level = level_of(log, { bucket = bucket })
  local theirs = { at = started, left = max(fills - (remaining + 1) * interval, 0), slowed = 0, by = 0, counted = 0 }
  theirs = filled_with(theirs, log.key, newer_than(log.key, counted), interval)
  local at = max(level.at, theirs.at)
  level = drained(level, at)
  local more = max(theirs.left - 1000 * (at - theirs.at), 0) - level.left
  if more <= 0 then return 0 end
  level.left, level.since = level.left + more, at
  keep_level(log, bucket, level)
  return ceil(more / interval)
end

-- Units that started at `first` or later may arrive as late as that: they fill the bucket as if they had started then. Says whether that
-- changes anything.
local function arrive(log, term, first, late)
  local level, units = level_of(log, term), newer_than(log.key, first - 1)
  local left = max(level.left, min(1000 * (late - level.at) + min(units * term.bucket.interval, MOST), MOST))
  term.levels = nil
  if units == 0 or left == level.left then return false end
  level.left, level.since = left, level.at
  keep_level(log, term.bucket, level)
  return true
end
