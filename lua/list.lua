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

-- The milliseconds of a log's expiry say for how long its most patient writer counts entries, however the server's clock is set: 7, and 15
-- for each half of a doubling of 8 ms. Of an expiry that was moved, as to a node with another clock, they mostly say nothing.
local function code_of(keep)
  local part, doublings = math.frexp(max(keep, 8) / 8)
  return 15 * min(2 * doublings - (part == 0.5 and 2 or part <= 0.5 ^ 0.5 and 1 or 0), 65) + 7
end

local function kept_by(code) return ceil(8 * 2 ^ (floor(code / 15) / 2)) end

-- Lets a log, at whose end so many entries were added, expire when its newest stops counting, after `keep` ms for whoever asks. Says how
-- long its entries are kept.
local function expire(key, newest, keep, added)
  if not ticks then return keep end
  local expiry = call('PEXPIRETIME', key)
  local code, known = expiry % 1000, 0
  local before = expiry > 0 and stamp_of(call('LINDEX', key, format('%d', -added - 1)), key)
  -- How much later it is than that, by the clock of now.
  local later = before and expiry - end_of_second(before) or 0
  if before then known = code % 15 == 7 and kept_by(code) <= 2 * later and kept_by(code) or later - LEAP end
  code = code_of(max(keep, known))
  local at = end_of_second(newest) + ceil(kept_by(code) / 1000) * 1000 + LEAP + code
  if at ~= expiry then call('PEXPIREAT', key, format('%d', at)) end
  return max(keep, kept_by(code))
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

-- Takes units that start at a time out of a log again, which is kept for so many ms. LREM walks from the tail: what lies deep, or is not
-- there, would cost it milliseconds. A slot kept breaks no limit. Says how many were taken out, and how many are newer.
local function take_out(key, start, units, keep)
  if units <= 0 then return 0 end -- of zero LREM would take all
  local newer = newer_than(key, start)
  if newer > MAX_DEPTH or stamp_of(call('LINDEX', key, format('%d', -newer - 1)), key) ~= start then return 0 end
  if units > 1 then units = min(units, newer_than(key, start - 1) - newer) end
  local taken = call('LREM', key, format('%d', -units), format('%d', start))
  local newest = stamp_of(call('LINDEX', key, '-1'), key)
  if newest then expire(key, newest, keep, 0) end
  return taken, newer
end
