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

-- Takes units that start at a time out of a log again. LREM walks from the tail: what lies deep, or is not there, would cost it
-- milliseconds. A slot kept breaks no limit. Says how many were taken out, and how many are newer.
local function take_out(key, start, units)
  if units <= 0 then return 0 end -- of zero LREM would take all
  local newer = newer_than(key, start)
  if newer > MAX_DEPTH or stamp_of(call('LINDEX', key, format('%d', -newer - 1)), key) ~= start then return 0 end
  local expiry = ticks and call('PEXPIRETIME', key) or 0
  local taken = call('LREM', key, format('%d', -units), format('%d', start))
  local newest = expiry > 0 and stamp_of(call('LINDEX', key, '-1'), key)
  if newest then call('PEXPIREAT', key, format('%d', expiry_of(newest, expiry % 1000))) end
  return taken, newer
end
