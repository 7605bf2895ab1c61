-- Logs, and the rule: the earliest start of some units. Joined behind boundaries.lua.

-- Parts of a quota, and of a span: see beside_others.
local LITTLE, PACE = 10, 20

-- The states of the scopes of an ask, in the order of its logs, each with the pauses that are in force; and where the keys of the logs
-- begin.
local function read_states(scopes, has_widest)
  local states, next_key = {}, 3
  for scope = 1, scopes do
    if scope == 1 and has_widest then
      states[scope] = upstream
    else
      states[scope], next_key = read_state(call('GET', KEYS[next_key]), KEYS[next_key]), next_key + 1
    end
    states[scope].pauses = pauses_of(states[scope])
  end
  return states, next_key
end

-- What refusals and hands left of the quotas of a scope: for each rate the longest span that it is for (of the same window with another
-- guard, too, or another capacity), the factor, and when one that refusals left is over.
local function rates_of(state)
  local rates = {}
  local function add(of, since)
    local rate = rate_since(of, since)
    if rate and lapse_of.rate(rate) > now then rates[#rates + 1] = { rate[2], factor_of(rate), lapse_of.rate(rate) } end
    if of.slow and of.slow[2] > now and of.slow[3] >= since then rates[#rates + 1] = { math.huge, of.slow[1] } end
  end
  add(state, released_above(state))
  if state ~= upstream then add(upstream, 0) end
  return rates
end

-- That calls come slower since refusals: millionths of the quotas that are left, the longest span that they are for, or 0, and for how many
-- µs; nil where they do not.
local function slower_of(states)
  local left, span, ends = FULL, 0, now
  for _, state in ipairs(states) do
    for _, rate in ipairs(rates_of(state)) do
      local factor, lapse = rate[2], rate[3]
      if lapse and factor < FULL then ends = max(ends, lapse) end
      if lapse and factor < left then left, span = factor, rate[1] end
    end
    for _, pause in ipairs(state.pauses) do
      if pause[2] > 0 then ends = max(ends, pause[1] + pause[2]) end
    end
  end
  return ends > now and { left, span, ends - now } or nil
end

local add_term
do
  -- A bucket with a factor on its rate: it drains more slowly, and holds what drains in the same time.
  local function lowered_bucket(bucket, factor)
    if factor >= FULL then return bucket end
    local interval = min(ceil(bucket.interval * (FULL / max(factor, 1))), max(FAR, bucket.interval))
    return { interval = interval, depth = max(bucket.depth, interval) }
  end

  -- A quota and its span with a factor on the quota. What a quota cannot be lowered by, since units are whole, makes the span longer.
  local function lowered(quota, span, factor)
    if factor >= FULL then return quota, span end
    local scaled = quota * max(factor, 1)
    local units = floor((scaled + FULL - 1) / FULL)
    return units, span + min(ceil(span * ((units * FULL - scaled) / scaled)), FAR)
  end

  -- Reads a term of a log from some integers. Says where it ends.
  function add_term(log, list, from, rates, names)
    local full, base, factor, bucket, calendar, quota, span, left = list[from], list[from + 1], FULL
    from = from + 2
    if base < 0 and list[from] == 1 then
      base, bucket, from = -base, { interval = list[from + 1], depth = list[from + 2] }, from + 3
    elseif base < 0 then
      base, log.has_calendar = -base, true
      calendar, from = read_calendar(list, from + 1, log.state, log.key, base, names)
    end
    for _, rate in ipairs(rates) do
      if base <= rate[1] + floor(rate[1] / 2) then factor = min(factor, rate[2]) end
    end
    if bucket then
      left = lowered_bucket(bucket, factor)
      quota, span = floor(left.depth / left.interval), ceil(left.depth / 1000)
    else
      quota, span = lowered(full, base, factor)
    end
    local term = { quota = quota, full = full, base = base, span = span, bucket = bucket, left = left, calendar = calendar }
    log.terms[#log.terms + 1] = term
    if bucket then log.buckets[#log.buckets + 1] = term end
    log.counts = list == a and max(log.counts, base) or log.counts
    log.retention, log.quota, log.least = max(log.retention, span), max(log.quota, full), min(log.least, quota)
    -- Of the term of the lowest rate: `slowest` units are granted in each `pace`.
    local slower = quota * (log.pace or span) - (log.slowest or quota) * span
    if slower < 0 or slower == 0 and span <= (log.pace or span) then log.slowest, log.pace = quota, span end
    log.widened = log.widened or span > base
    local interval = bucket and ceil(left.interval / 1000) or ceil(span / quota)
    local comes_alone = bucket or full == 1 or not calendar and base <= 8 * (a[5] or 0) and 2 * ceil(base / full) >= a[5]
    log.interval, log.one_by_one = max(log.interval, interval), max(log.one_by_one or 0, comes_alone and interval or 0)
    return from
  end
end

-- Cold calls probably opened a connection first, and arrived later than others. Their units stand in the log as all others do, and count
-- somewhat longer; those of a term that started close together are one step.
local STEPS_OF_SPAN = 16

local function read_cold(log)
  local steps = log.state.cold
  log.has_cold = false
  for _, term in ipairs(log.terms) do
    term.cold = {}
    for i = 1, #steps, 6 do
      if steps[i] == log.key and steps[i + 5] > now then
        log.has_cold = true
        if steps[i + 1] == term.base and not (term.bucket or term.calendar) then
          term.cold[#term.cold + 1] = { from = steps[i + 2] + term.base, units = steps[i + 4], lapse = steps[i + 5] }
        end
      end
    end
  end
end

-- Enters units of a log that cold calls took; for how much longer they count by each term stands at `at`. Says whether there was anything
-- to enter.
local function enter_cold(log, first, last, units, at)
  local steps, is_news = log.state.cold, false
  last = min(last, now)
  first = min(first, last)
  for t = 1, log.own do
    local term, longer = log.terms[t], a[at + t - 1]
    local lapse, step = last + term.base + longer, #steps + 1
    if term.bucket then
      is_news = (longer > 0 and units > 0 and arrive(log, term, first, last + longer)) or is_news
    elseif longer > 0 and units > 0 and not term.calendar then
      for i = #steps - 5, 1, -6 do
        local is_near = math.abs(steps[i + 2] - first) <= floor(term.base / STEPS_OF_SPAN)
        if steps[i] == log.key and steps[i + 1] == term.base and steps[i + 5] > now and is_near then step = i end
      end
      steps[step], steps[step + 1], steps[step + 2] = log.key, term.base, min(steps[step + 2] or first, first)
      steps[step + 3], steps[step + 4] = max(steps[step + 3] or last, last), min((steps[step + 4] or 0) + units, term.full)
      steps[step + 5], is_news = max(steps[step + 5] or lapse, lapse), true
    end
  end
  if is_news then read_cold(log) end
  return is_news
end

-- Reads a log's terms from the arguments at `at`, the count of them first; an ask `names` the boundaries of its calendars, and obeys what
-- others name beside its own. Its entries are read as they are needed, and `ahead` says how many at once; what is booked now is added to
-- them.
local function open_log(key, state, at, names)
  local log = { key = key, state = state, terms = {}, retention = 0, counts = 0, quota = 0, interval = 0, least = math.huge }
  log.settles = state.loss and state.loss[2] or 0
  local rates, from = rates_of(state), at + 1
  log.buckets, log.at, log.own = {}, at, a[at]
  for _ = 1, log.own do from = add_term(log, a, from, rates, names) end
  log.own_pace = log.pace
  log.named = named_terms.beside(log, at)
  for _, of in ipairs(names and log.named or {}) do add_term(log, of[1], of[2], rates) end
  for i = 1, #state.outside, TOLD do
    local own, base, started, left, units, most, since, lapse, slides = unpack(state.outside, i, i + TOLD - 1)
    for _, term in ipairs(log.terms) do
      if own == key and base == term.base and not (term.bucket or term.calendar) and lapse + base > now then
        log.has_outside = true
        term.outside = { started = started, left = left, units = units, most = most, since = since, lapse = lapse, slides = slides == 1 }
      end
    end
  end
  read_cold(log)
  log.read, log.added, log.upto, log.runs, log.count, log.ahead = {}, {}, {}, 0, 0, 1
  return log, from
end

-- The entry with n - 1 newer ones; nil when the log is shorter.
local function nth_newest(log, n)
  if n <= log.count then return log.added[run_of(log, n)] end
  n = n - log.count
  local entry = log.read[n]
  if entry ~= nil then return entry or nil end
  if log.ahead <= 1 or n == 1 then
    entry = stamp_of(call('LINDEX', log.key, format('%d', -n)), log.key)
    log.read[n] = entry or false
    return entry
  end
  -- As callers are granted, the rule moves on to newer entries: read those in one piece.
  local last = max(n - log.ahead + 1, 1)
  local found = call('LRANGE', log.key, format('%d', -n), format('%d', -last))
  for k = last, n do log.read[k] = false end
  for i = 1, #found do log.read[last + #found - i] = stamp_of(found[i], log.key) or false end
  return log.read[n] or nil
end

-- The earliest start of some units under a pause: after it one after another, at first at a tenth of the rate, but none later than a tenth
-- of what is left of the recovery: else slow limits would let nobody start, and then all at once.
local function after_pause(pause, newest, interval, units)
  local base, elapsed, gaps = pause[1], 0, units - 1
  if newest and newest >= pause[1] then base, elapsed, gaps = newest, newest - pause[1], units end
  if elapsed >= pause[2] then return pause[1] end
  local slower = RESUMED * pause[2] / (pause[2] + (RESUMED - 1) * elapsed)
  return base + ceil(min(interval * slower * gaps, (pause[2] - elapsed) / RESUMED))
end

-- How many entries are newer than a stamp, of the newest `most`.
local function newer_of(log, stamp, most)
  local newer, rest = 0, most + 1
  while newer + 1 < rest do
    local n = floor((newer + rest) / 2)
    local entry = nth_newest(log, n)
    if entry and entry > stamp then newer = n else rest = n end
  end
  return newer
end

-- The earliest start under a term of which others use a part. Until the reset no more start than were left when a call was answered last,
-- and what others use until then is theirs. Where less than a tenth of the quota is left beside that, each unit comes so long after the
-- one before that what is left would last for a twentieth of the span. Where units come back one by one, and for a span after the reset,
-- what others had used is missing from the quota.
local function beside_others(log, term, newest, start, units)
  local told, quota, span, base = term.outside, term.full, term.span, term.base
  if start >= told.lapse + base then return start end
  local function apart(from, left)
    local pace = floor(floor(span / PACE) / max(left, 1))
    return max(from, newest and newest + pace or from) + (units - 1) * pace
  end
  local little = floor(quota / LITTLE)
  if start < told.lapse and not told.slides then
    local left, each = told.left - newer_of(log, told.started, told.left), max(floor(base / told.most), 1)
    local function expected(at) return ceil(max(at - told.started, 0) / each) end
    local ready, beside = start, left - expected(told.lapse)
    if beside - units < little then ready = apart(start, beside) end
    if ready < told.lapse and left - expected(ready) >= units then return ready end
    start = told.lapse
  end
  local ours = max(quota - told.units, 0)
  local function when_left(left)
    local n = ours - left - units + 1
    local entry = nth_newest(log, max(n, 1))
    return max(start, entry and entry + span or start, n > 0 and start or told.lapse)
  end
  local left = ours - newer_of(log, start - span, quota)
  local ready = min(apart(when_left(0), left), when_left(little))
  return min(ready, max(start, told.lapse + base))
end

-- Units of a term that cold calls take at `start`, and the log counts no more; and when the first of them end, if there are any.
local function taken_by_cold(term, start)
  local taken, ends = 0, nil
  for _, step in ipairs(term.cold) do
    if step.from <= start and start < step.lapse then taken, ends = taken + step.units, min(ends or step.lapse, step.lapse) end
  end
  return taken, ends
end

-- The earliest start under a term beside those.
local function beside_cold(log, term, start, units)
  while true do
    local taken, ends = taken_by_cold(term, start)
    if not ends then return start end
    local n = max(term.quota - taken, 0) + 1 - units
    local entry = n > 0 and nth_newest(log, n)
    local ready = n > 0 and (entry and entry + term.span or start) or ends
    if ready <= start then return start end
    start = min(ready, ends)
  end
end

-- The rule, looked at once: the earliest start, not before `start`, for some units under every term and pause of a log.
local function earliest_once(log, start, units)
  local newest, terms = nth_newest(log, 1), log.terms
  if newest and newest > start then start = newest end
  if log.settles > start then start = log.settles end
  for t = 1, #terms do
    local term = terms[t]
    -- What is more than a lowered quota starts when nothing else counts.
    local entry = not term.bucket and nth_newest(log, max(term.quota - units + 1, 1))
    if term.calendar then
      start = after_boundary(term.calendar, start, entry)
    elseif entry and entry + term.span > start then
      start = entry + term.span
    end
    if term.bucket then start = max(start, with_room(level_of(log, term), term.left, units)) end
  end
  for p = 1, #log.pauses do start = max(start, after_pause(log.pauses[p], newest, log.interval, units)) end
  for t = 1, log.has_outside and #terms or 0 do
    if terms[t].outside then start = beside_others(log, terms[t], newest, start, units) end
  end
  for t = 1, log.has_cold and #terms or 0 do start = beside_cold(log, terms[t], start, units) end
  return start
end

-- The same, until nothing moves it any more: before a boundary a start that something else moves may be moved again.
local function earliest(log, start, units)
  local found = earliest_once(log, start, units)
  for _ = 2, log.has_calendar and ROUNDS or 1 do
    if found == start then break end
    start, found = found, earliest_once(log, found, units)
  end
  return found
end
