-- What a stored log holds: its entries, and in front of them maybe a mark of its last loss, as loss.lua writes it. Joined behind state.lua.

-- When a loss was seen of which a log bears the mark; nil where what was read is none.
local function mark_of(entry) return entry and tonumber(string.match(entry, '^L(%d+)$')) end

-- A stored entry as a number; nil where there is none, and of a mark. Lua takes `nan` and `inf` for numbers, too.
local function stamp_of(entry, key)
  if not entry then return nil end
  local stamp = tonumber(entry)
  if not stamp and mark_of(entry) then return nil end
  if not (stamp and stamp >= oldest and stamp < 9e15) then garbage(key) end
  return stamp
end

-- The milliseconds of a log's expiry say for how long its most patient writer counts entries, however the server's clock is set: 15 for
-- each half of a doubling of 8 ms, and as much more as the seconds and the halves leave of a division by 15.
local function halves_of(keep)
  local part, doublings = math.frexp(max(keep, 8) / 8)
  return min(2 * doublings - (part == 0.5 and 2 or part <= 0.5 ^ 0.5 and 1 or 0), 65)
end

local function kept_for(halves) return floor(8 * 2 ^ (halves / 2)) end

-- When a log expires whose newest entry lies in the second that ends then.
local function expiry_of(end_of_newest, halves)
  local seconds = (end_of_newest + LEAP) / 1000 + ceil(kept_for(halves) / 1000)
  return 1000 * seconds + 15 * halves + (seconds + halves) % 15
end

-- The halves that an expiry says, or 0, where the second of the newest entry of then ends, by the clock of now. What would be written
-- otherwise was moved since, as to a node with another clock: then the longer time is believed. Or the clock was set: then what it tells.
local function halves_by(expiry, end_of_newest)
  local told = floor(expiry % 1000 / 15)
  local is_told = told <= 65 and expiry % 1000 % 15 == (floor(expiry / 1000) + told) % 15
  if not end_of_newest then return is_told and told or 0 end
  if is_told and expiry == expiry_of(end_of_newest, told) then return told end
  local later = expiry - LEAP - end_of_newest
  local halves = halves_of(later)
  while halves > 0 and expiry_of(end_of_newest, halves) - 500 > expiry do halves = halves - 1 end
  if not is_told or kept_for(told) > 8 * max(later, 1000) then return halves end
  return correction == 0 and max(told, halves) or told
end

-- Lets a log, at whose end so many entries were added, expire when its newest stops counting, after `keep` ms for whoever asks. Says how
-- long its entries are kept.
local function expire(key, newest, keep, added)
  if not ticks then return keep end
  local expiry, halves = call('PEXPIRETIME', key), halves_of(keep)
  if expiry > 0 then
    local before = stamp_of(call('LINDEX', key, format('%d', -added - 1)), key)
    halves = max(halves, halves_by(expiry, before and end_of_second(before)))
  end
  local at = expiry_of(end_of_second(newest), halves)
  if at ~= expiry then call('PEXPIREAT', key, format('%d', at)) end
  return max(keep, kept_for(halves))
end

-- Entries of a stored list newer than `stamp`, found by bisection: the list is sorted.
local function newer_than(key, stamp)
  local newer, rest = 0, call('LLEN', key) + 1
  while newer + 1 < rest do
    local n = floor((newer + rest) / 2)
    if (stamp_of(call('LINDEX', key, format('%d', -n)), key) or stamp) > stamp then newer = n else rest = n end
  end
  return newer
end

-- Of the runs of equal starts that an ask adds to a log, the one of the start with n - 1 newer ones among them.
local function run_of(log, n)
  local place, first, last = log.count - n + 1, 1, log.runs
  if n == 1 then return last end
  if last == log.count then return place end
  while first < last do
    local run = floor((first + last) / 2)
    if log.upto[run] < place then first = run + 1 else last = run end
  end
  return first
end

-- Pushes runs of equal starts, each with as many units as there are from the end of the one before up to its own. Says how long the log is
-- then, where there are any.
local function push_runs(key, starts, upto, runs)
  local piece, size, length = {}, 0, nil
  for run = 1, runs do
    local text = format('%d', starts[run])
    for _ = (upto[run - 1] or 0) + 1, upto[run] do
      size = size + 1
      piece[size] = text
      if size == PIECE then
        length = call('RPUSH', key, unpack(piece))
        size = 0
      end
    end
  end
  if size > 0 then length = call('RPUSH', key, unpack(piece, 1, size)) end
  return length
end

-- Takes units that start at a time out of a log again, which is kept for so many ms. LREM walks from the tail: what lies deep, or is not
-- there, would cost it milliseconds. A slot kept breaks no limit. Says how many were taken out, and how many are newer.
local function take_out(key, start, units, keep)
  if units <= 0 then return 0 end -- of zero LREM would take all
  local newer = newer_than(key, start)
  if newer > MAX_DEPTH or stamp_of(call('LINDEX', key, format('%d', -newer - 1)), key) ~= start then return 0 end
  if units > 1 then units = min(units, newer_than(key, start - 1) - newer) end
  -- Asked for before: beside an older newest entry the expiry that stands would seem to be moved.
  local newest_before = stamp_of(call('LINDEX', key, '-1'), key)
  local kept = expire(key, newest_before, keep, 0)
  local taken = call('LREM', key, format('%d', -units), format('%d', start))
  local newest = stamp_of(call('LINDEX', key, '-1'), key)
  -- A tail of the same second leaves it as it is.
  if newest and ticks and end_of_second(newest) ~= end_of_second(newest_before) then
    call('PEXPIREAT', key, format('%d', expiry_of(end_of_second(newest), halves_of(kept))))
  end
  return taken, newer
end
