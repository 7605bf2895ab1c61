-- What every script shares: the clock, and a log as one call sees it. Joined in front of each script.
-- Times are integer microseconds. A time becomes text by text() only: tostring keeps 14 digits.

-- No entry is as old as this: by the server's clock none is of before 2001.
local oldest = -9e15

-- Calls resume at this fraction of the limits' rate after a hold; no start is put further away than FAR.
local RESUMED, FAR = 10, 1e15
-- A slot with more newer entries than this is not handed back.
local MAX_DEPTH = 10000
-- By so much, in ms, the server's clock may leap ahead and no log is lost: it is kept for longer.
local LEAP = 11000
-- For how long, in ms, a correction of the clock is kept: longer than any log.
local MAX_CORRECTED = 2764800000

-- Fails, since a log with an entry that is no time would look shorter than it is, and a correction that is none move all of them.
local function garbage(key) error(redis.error_reply('GARBAGE ' .. key)) end

-- By how much log time differs from the server's clock, which may step: expiries count on the clock.
local correction = 0

-- The log time of an upstream: the server's clock, or the one that a test supplies, corrected so that it never runs backwards. Under
-- a supplied clock no key expires: the server would count on its own.
--
-- Whoever asks says the newest log time that is `known` to it: no less may it be now. And where the clock has leapt ahead of all that a
-- process knows of it, that process says by when it is at the `latest`.
local function log_time(supplied, clock_key, known, latest)
  local time, expires = tonumber(supplied), supplied == ''
  if expires then
    local parts = redis.call('TIME')
    time, oldest = parts[1] * 1000000 + parts[2], 1e15
  end
  correction = tonumber(redis.call('GET', clock_key) or 0)
  if not correction or math.abs(correction) >= 9e15 or correction % 1 ~= 0 then garbage(clock_key) end
  local now = math.max(math.min(time + correction, latest or 9e15), known or -9e15)
  if now ~= time + correction then
    correction = now - time
    if not expires then
      redis.call('SET', clock_key, string.format('%d', correction))
    else
      redis.call('SET', clock_key, string.format('%d', correction), 'PX', MAX_CORRECTED)
    end
  end
  return now, expires
end

local function text(us) return string.format('%d', us) end

-- Reads `count` terms from the arguments at `from`: pairs of quota and span, each span `widened` by so many thousandths. Also the
-- longest span and the largest quota.
local function read_terms(args, from, count, widened)
  local terms, retention, quota = {}, 0, 0
  for i = 1, count do
    local base = tonumber(args[from + 1])
    local term = { quota = tonumber(args[from]), base = base, span = base + math.floor(base / 1000) * widened }
    terms[i], from = term, from + 2
    if term.span > retention then retention = term.span end
    if term.quota > quota then quota = term.quota end
  end
  return terms, retention, quota, from
end

-- The time that one unit takes by the slowest of some terms.
local function interval_of(terms)
  local interval = 0
  for _, term in ipairs(terms) do interval = math.max(interval, math.ceil(term.span / term.quota)) end
  return interval
end

-- What an upstream told, of a scope or of all of it: a hold, a wider guard, foreign use; each false or empty where there is none.
--   hold     no start before `stop`; calls come slower for `recovery` µs after it; refusals in a row; cause; when the row is forgotten
--   guard    thousandths by which spans are wider at `since`, falling evenly to none at `lapse`
--   foreign  for each step: log key, span, units that others have used, when they count no more
local function read_told(record, now)
  local told = { foreign = {} }
  if not record then return told end
  local hold, guard, foreign = unpack(cmsgpack.unpack(record))
  if hold and hold[5] > now then
    told.hold = { stop = hold[1], recovery = hold[2], refusals = hold[3], cause = hold[4], forgotten = hold[5] }
  end
  if guard and guard[3] > now then told.guard = { widened = guard[1], since = guard[2], lapse = guard[3] } end
  for i = 1, #foreign, 4 do
    local key, span, units, lapse = unpack(foreign, i, i + 3)
    if lapse > now then table.insert(told.foreign, { key = key, span = span, units = units, lapse = lapse }) end
  end
  return told
end

-- By how many thousandths spans are wider now.
local function widened_by(guard, now)
  if not guard then return 0 end
  local length = guard.lapse - guard.since
  return math.floor(guard.widened * math.min(guard.lapse - now, length) / length)
end

-- The hold on a whole upstream, as a scope sees it: somewhat later, each by its name, so that not all come back in one moment.
local function staggered(hold, key, key_all)
  local share = 0
  -- The scope is what one key has more than the other.
  local last = math.min(#key - 5, #key_all + 35)
  for _, byte in ipairs({ string.byte(key, #key_all - 4, last) }) do share = (share * 31 + byte) % 65536 end
  local later = math.floor(hold.recovery / 131072 * share)
  return { stop = hold.stop + later, recovery = hold.recovery - later, cause = hold.cause }
end

-- What holds for a scope by what was told of it and of the whole upstream: holds, the widening of spans, foreign use.
local function heed(record, record_all, key, key_all, now)
  local told, holds = read_told(record, now), {}
  if told.hold then holds[1] = told.hold end
  local guard = told.guard
  if key_all ~= key and record_all then
    local all = read_told(record_all, now)
    if all.hold then holds[#holds + 1] = staggered(all.hold, key, key_all) end
    guard = all.guard
  end
  return { holds = holds, widened = widened_by(guard, now), foreign = told.foreign }
end

-- The earliest start of some units under a hold: after it one after another, at first at a tenth of the rate.
local function after_hold(hold, newest, interval, units)
  local base, elapsed, gaps = hold.stop, 0, units - 1
  if newest and newest >= hold.stop then base, elapsed, gaps = newest, newest - hold.stop, units end
  if elapsed >= hold.recovery then return hold.stop end
  local slower = RESUMED * hold.recovery / (hold.recovery + (RESUMED - 1) * elapsed)
  return math.min(base + math.min(math.ceil(interval * slower * gaps), FAR), hold.stop + hold.recovery)
end

-- A log: the stored list, and after it the starts that this call adds. `ahead` says how many entries to read at once.
local function open_log(key, terms, ahead, heeded)
  local holds = heeded.holds
  for _, step in ipairs(heeded.foreign) do
    for _, term in ipairs(terms) do
      if step.key == key and step.span == term.base then
        term.foreign = term.foreign or {}
        table.insert(term.foreign, step)
      end
    end
  end
  local interval = #holds > 0 and interval_of(terms)
  return { key = key, terms = terms, ahead = ahead, holds = holds, interval = interval, read = {}, added = {}, count = 0 }
end

-- A stored entry as a number; nil where there is none.
local function stamp_of(entry, key)
  if not entry then return nil end
  local stamp = tonumber(entry)
  -- Lua takes `nan` and `inf` for numbers, too. No stamp is as large as 9e15, and a constant costs no look-up.
  if not (stamp and stamp >= oldest and stamp < 9e15) then garbage(key) end
  return stamp
end

-- The entry with n - 1 newer ones; nil when the log is shorter.
local function nth_newest(log, n)
  if n <= log.count then return log.added[log.count - n + 1] end
  n = n - log.count
  local entry = log.read[n]
  if entry ~= nil then return entry or nil end
  if log.ahead <= 1 or n == 1 then
    entry = stamp_of(redis.call('LINDEX', log.key, -n), log.key)
    log.read[n] = entry or false
    return entry
  end
  -- As callers are granted, the rule moves on to newer entries: read those in one piece.
  local last = math.max(n - log.ahead + 1, 1)
  local found = redis.call('LRANGE', log.key, -n, -last)
  for k = last, n do log.read[k] = false end
  for i = 1, #found do
    local stamp = tonumber(found[i])
    if not (stamp and stamp >= oldest and stamp < 9e15) then garbage(log.key) end
    log.read[last + #found - i] = stamp
  end
  return log.read[n] or nil
end

-- The earliest start under a term of which others use a part: until each step lapses, its units are missing from the quota, and
-- ours come one after another, so that each can be answered before the next.
local function beside_foreign(log, term, newest, start, cost)
  local interval = math.ceil(term.span / term.quota)
  for _, step in ipairs(term.foreign) do
    if step.lapse > start then
      local n = term.quota - step.units - cost + 1
      local entry = n > 0 and nth_newest(log, n)
      local ready = math.max(start, entry and entry + term.span or start, newest and newest + interval or start)
      ready = n > 0 and ready + (cost - 1) * interval or step.lapse
      if ready < step.lapse then return ready end
      start = step.lapse
    end
  end
  return start
end

-- The rule: the earliest start, not before `floor`, for `cost` units under every term and hold of a log.
local function earliest(log, floor, cost)
  local newest = nth_newest(log, 1)
  local start = math.max(floor, newest or floor)
  for _, hold in ipairs(log.holds) do start = math.max(start, after_hold(hold, newest, log.interval, cost)) end
  for _, term in ipairs(log.terms) do
    local n = term.quota - cost + 1
    local entry = n > 0 and nth_newest(log, n)
    if entry and entry + term.span > start then start = entry + term.span end
  end
  for _, term in ipairs(log.terms) do
    if term.foreign then start = beside_foreign(log, term, newest, start, cost) end
  end
  return start
end

-- Entries of a stored list newer than `stamp`, found by bisection: the list is sorted.
local function newer_than(key, stamp)
  local newer, rest = 0, redis.call('LLEN', key) + 1
  while newer + 1 < rest do
    local n = math.floor((newer + rest) / 2)
    if stamp_of(redis.call('LINDEX', key, -n), key) > stamp then newer = n else rest = n end
  end
  return newer
end

-- For how long, in ms, entries of a log are kept: its expiry less its newest entry says what the most patient process wants.
local function kept_ms(key, newest)
  local expiry = redis.call('PEXPIRETIME', key)
  if expiry < 0 or not newest then return 0 end
  return expiry - LEAP - math.floor((newest - correction) / 1000)
end

-- Lets a log expire when its newest entry stops counting.
local function expire_log(key, newest, ms)
  redis.call('PEXPIREAT', key, text(math.floor((newest - correction) / 1000) + ms + LEAP))
end

-- Takes units that start at a time out of a log again. LREM walks from the tail: what lies deep, or is not there, would cost it
-- milliseconds. A slot kept breaks no limit.
local function take_out(key, start, units, expires)
  local newer = newer_than(key, tonumber(start))
  local found = newer <= MAX_DEPTH and stamp_of(redis.call('LINDEX', key, -newer - 1), key) == tonumber(start)
  -- A count of zero would mean all of them.
  if not found or units <= 0 then return end
  local keep = expires and kept_ms(key, stamp_of(redis.call('LINDEX', key, -1), key)) or 0
  redis.call('LREM', key, -units, start)
  local newest = keep > 0 and stamp_of(redis.call('LINDEX', key, -1), key)
  if newest then expire_log(key, newest, keep) end
end

-- The last message of a sender, unless its memory has lapsed; refuses one that comes after a later one. Then until when
-- an earlier message is remembered, and its number.
local function recall(record, now, number)
  if not record then return nil, nil, 0 end
  local seen = cmsgpack.unpack(record)
  if seen[2] <= now then return nil, nil, 0 end
  if seen[1] > number then return nil, redis.error_reply('OUTDATED a later message of this sender has been seen') end
  if seen[1] == number then return seen end
  return nil, nil, seen[2], seen[1]
end

-- Refuses a message whose sender knows of another last message, if of any: two processes have one name, and each would get what the
-- other asked for.
local function foreign_name(previous, last)
  if last and previous > 0 and previous ~= last then
    return redis.error_reply('DUPLICATE another process sends under the same name')
  end
end

-- Remembers a message and its answer until a stamp.
local function remember(key, number, now, stamp, expires, answer)
  local seen = { number, stamp }
  for i = 1, #answer do seen[i + 2] = answer[i] end
  if expires then
    redis.call('SET', key, cmsgpack.pack(seen), 'PX', text(math.ceil((stamp - now) / 1000)))
  else
    redis.call('SET', key, cmsgpack.pack(seen))
  end
end
