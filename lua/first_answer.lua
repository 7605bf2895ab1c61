-- What is answered at a glance, and written for it, where first_look.lua has found an ask to be `plain`; else the rest of the script does.
-- Joined behind first_look.lua.

-- What is answered: flags, and what follows them; '' where everybody starts now, and there is nothing else to say. And the start of the
-- last caller; or those of all, where they differ.
local body, last, stamps, is_new = nil, now, nil, false

-- Counts the process among those who wait, in a new period where theirs has ended, as contenders.lua does.
local count_in = place and function()
  local all, length, interval = place.all, 8 * horizon, 0
  -- Of each log the term of the lowest rate.
  for _, log in ipairs(logs) do
    local from, quota, span = log[3], nil, nil
    for t = from + 2, from + 2 * a[from + 1], 2 do
      local slower = quota and a[t] * span - quota * a[t + 1] or -1
      if slower < 0 or slower == 0 and a[t + 1] < span then quota, span = a[t], a[t + 1] end
      local apart = math.ceil(a[t + 1] / a[t])
      if a[t] == 1 or a[t + 1] <= 8 * horizon and 2 * apart >= horizon then interval = math.max(interval, apart) end
    end
    length = math.max(length, span)
  end
  length = math.min(math.max(length, (all[4] + all[5] + all[6]) * interval), MAX_SILENCE) + 2 * horizon
  if place.has_ended then all = { now + length, all[1], length, 0, 0, 0, all[4], all[5], all[6] } end
  if place.was_counted then all[own + 3] = math.max(all[own + 3] - weight, 0) end
  all[own] = all[own] + weight
  place.all, is_new, counted = all, true, all[1] + priority
end

if plain and (counted > 0 or place) and not overfull and start > now + within and flags % 16 == 0
  and (max_wait < 0 or start <= now + max_wait)
  and not (remembers and retention > 10 * SECOND and (a[newest_known - 1] == 0 or a[newest_known] + MAX_MEMORY / 2 <= now)) then
  local stop, cause, status = pause and pause[1] or 0, pause and pause[4] or 0, pause and pause[7] or 0
  if counted > 0 then
    return struct.pack('<i8i8i8i8i8i8i8i8i8i8', number, now, 0, start, within, stop, cause, status, others, counted)
  end
  count_in()
  callers, body = 0, struct.pack('<i8i8i8i8i8i8i8i8', 2, start, within, stop, cause, status, others, counted)
elseif plain and start == now and times == callers and (callers == 1 or others == 0) then
  body = ''
  if place and place.was_counted then count_in() end
  if others + counted > 0 then
    body = struct.pack('<i8i8i8i8i8i8i8i8', 2, now, within, 0, 0, 0, others, counted) .. string.rep('\0', 8 * (scopes - 1))
      .. struct.pack('<i8i8i8', 1, now, callers)
  end
elseif plain and start <= now + within and scopes == 1 and flags % 2048 == 0 and max_wait < 0 and callers <= PIECE
  and not (pause or overfull) then
  -- The terms of the logs that are charged. Of each the entries are read as they are needed: the one before those of a full quota, then
  -- for each caller the one that has to stop counting.
  local max, min, floor = math.max, math.min, math.floor
  local terms, limit, soonest, most = {}, now + within, now, callers
  for i, log in ipairs(logs) do
    local units, from = a[charges + i], log[3]
    plain = plain and units <= 1
    for t = from + 2, units > 0 and from + 2 * a[from + 1] or 0, 2 do
      terms[#terms + 1] = { key = log[1], quota = a[t], span = a[t + 1], newest = max(log[2] or 0, now), read = 0 }
    end
    if units > 0 then soonest = max(soonest, log[2] or 0) end
  end
  -- In pieces, each twice as long as the one before.
  local function read_on(term)
    local upto = min(2 * term.read + 15, callers, term.quota)
    local from, to = term.quota + 1 - term.read, term.quota + 1 - upto
    local found = call('LRANGE', term.key, format('%d', -from), format('%d', -to))
    for n = 1, #found do
      local stamp = tonumber(found[n])
      plain = plain and stamp and stamp >= oldest and stamp < 9e15
      term[upto - #found + n] = stamp
    end
    term.read = upto + 1
  end
  -- When the next caller starts behind those who start at `starts`.
  local starts, count, term_count = {}, 0, #terms
  local function next_start()
    local caller, start = count + 1, starts[count] or soonest
    for n = 1, term_count do
      local term = terms[n]
      if caller <= term.quota and caller >= term.read then read_on(term) end
      local entry = caller > term.quota and starts[caller - term.quota] or term[caller]
      if plain and entry and entry + term.span > start then start = entry + term.span end
    end
    return start
  end

  -- Where more counts than its terms ever let start somebody may ask by others, and is to be told.
  local first = next_start()
  for _, term in ipairs(terms) do plain = plain and not (term[0] and term[0] + term.span > term.newest) end
  -- The share of its process, as shares.lua finds it.
  if plain and others > 0 and callers > 1 then
    local least, in_a_quarter = math.huge, math.huge
    for _, term in ipairs(terms) do
      least, in_a_quarter = min(least, floor(term.quota * (limit - first) / term.span)), min(in_a_quarter, floor(term.quota / 4))
    end
    local function may_take(spent)
      local units = spent * (others + 1) + 1
      for _, term in ipairs(terms) do
        local entry = units <= term.quota and call('LINDEX', term.key, format('%d', units - term.quota - 1))
        if units > term.quota or entry and (tonumber(entry) or 9e15) + term.span > limit then return false end
      end
      return true
    end
    local over, step = callers - 1, 1
    if not may_take(over) then
      most = math.ceil(((is_highest and max(least, in_a_quarter) or least) + 1) / (others + 1))
      while most < over do
        local spent = min(most + step - 1, most + floor((over - most) / 2))
        if may_take(spent) then most, step = spent + 1, 2 * step else over = spent end
      end
    end
  end

  local next, most = first, min(most, callers)
  while plain and next <= limit and count < most do
    count = count + 1
    starts[count] = next
    next = count < callers and next_start() or now
  end
  plain = plain and count > 0 and (count == callers or counted > 0 or place)
  for i, log in ipairs(logs) do
    local quota, from = 0, log[3]
    for t = from + 2, from + 2 * a[from + 1], 2 do quota = max(quota, a[t]) end
    plain = plain and (a[charges + i] == 0 or call('LLEN', log[1]) + count <= TRIM_QUOTAS * quota + TRIM_SLACK)
  end
  if plain then
    local answers, from, start, text = {}, 1, first, format('%d', first)
    stamps = {}
    for n = 1, count do
      if starts[n] ~= start then
        answers[#answers + 1] = struct.pack('<i8i8i8', 1, start, n - from)
        from, start, text = n, starts[n], format('%d', starts[n])
      end
      stamps[n] = text
    end
    answers[#answers + 1] = struct.pack('<i8i8i8', 1, start, count + 1 - from)
    if place and (place.was_counted or count < callers) then count_in() end
    callers, last = count, start
    body = struct.pack('<i8i8i8i8i8i8i8i8', 2, next, within, 0, 0, 0, others, counted) .. table.concat(answers)
  end
end

-- Keys expire by whole seconds: where the newest entry is the sender's own, of the same second, the log does not sooner. Where its expiry
-- does not say for how long it is kept, the rest of the script writes. Spelled out, as list.lua's functions are not
-- made yet: to make one takes longer.
local expiries = nil
for i = 1, body and ticks and callers > 0 and width or 0 do
  local log, into_second = logs[i], (last - correction) % SECOND
  local newest = log[2]
  if a[charges + i] > 0 and not (newest and newest == a[newest_known + i] and newest >= last - into_second) then
    local expiry, least = newest and call('PEXPIRETIME', log[1]) or 0, math.max(math.ceil(log[4] / 1000), 8)
    local millis = expiry % 1000
    local seconds, told = (expiry - millis) / 1000, (millis - millis % 15) / 15
    local length, is_told = 8 * 2 ^ (told / 2), told <= 65 and millis % 15 == (seconds + told) % 15
    local kept, from = math.ceil((length - length % 1) / 1000), (last - correction - into_second) / SECOND + 1 + LEAP / 1000
    -- Mostly it says already what is to be said.
    if not is_told or expiry == 0 or length < least or 8 * 2 ^ ((told - 1) / 2) >= least or seconds ~= from + kept then
      local part, doublings = math.frexp(least / 8)
      local halves = math.min(2 * doublings - (part == 0.5 and 2 or part <= 0.5 ^ 0.5 and 1 or 0), 65)
      if expiry > 0 then
        -- That others count entries for another time is believed of what was written with the newest.
        local of_newest = math.floor((newest - correction) / SECOND) + 1 + LEAP / 1000
        if not is_told or told ~= halves and seconds ~= of_newest + kept then body = nil end
        halves = math.max(halves, told)
      end
      seconds, expiries = from + math.ceil(math.floor(8 * 2 ^ (halves / 2)) / 1000), expiries or {}
      local at = 1000 * seconds + 15 * halves + (seconds + halves) % 15
      expiries[i] = at ~= expiry and at
    end
  end
end

-- Write.
if body and (callers == 0 or last <= latest_kept) then
  local text = last == now and spelled or format('%d', last)
  for i = 1, width do
    local log = logs[i]
    local key, units = log[1], a[charges + i] * callers
    if units == 1 then call('RPUSH', key, text) end
    if units > 1 then
      stamps = stamps or {}
      for n = #stamps + 1, units do stamps[n] = text end
      call('RPUSH', key, unpack(stamps, 1, units))
    end
    if expiries and expiries[i] then call('PEXPIREAT', key, format('%d', expiries[i])) end
  end
  if is_new then
    local all = place.all
    local packed, lapse = SOMEBODY .. struct.pack(WAITING, unpack(all)) .. place.behind, math.max(place.lapse, all[1] + all[3])
    local at = ticks and math.ceil((lapse - correction) / 1000) + LEAP or LONGEST
    call('SET', place.key, packed, ticks and 'PXAT' or 'PX', format('%d', at))
  end
  if number > 0 then
    local before, soonest, latest = lapse, now + retention + horizon + 1000 * LEAP, now + MAX_MEMORY + 1000 * LEAP
    if soonest > lapse then lapse = soonest end
    if lapse > latest then lapse = latest end
    local replay = body == '' and struct.pack('<i8i8i8i8', number, lapse, 3, now) or struct.pack('<i8i8', number, lapse) .. body
    local at = math.floor((lapse - correction) / SECOND)
    -- In the place of the last where that is kept for as long: that takes half the time.
    if record and #record == #replay and math.floor((before - correction) / SECOND) == at then
      call('SETRANGE', KEYS[1], '0', replay)
    elseif ticks then
      call('SET', KEYS[1], replay, 'PXAT', format('%d', (at + 1) * 1000))
    else
      call('SET', KEYS[1], replay, 'PX', format('%d', LONGEST))
    end
  end
  if body == '' and passed < 1099511627776 then return passed * 4096 + number % 4096 end
  return struct.pack('<i8i8', number, now) .. (body == '' and struct.pack('<i8i8', 3, now) or body)
end
