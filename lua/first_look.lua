-- The commonest asks, decided at a glance: callers of one kind, where others may wait, but nothing else is in force. All of them can start
-- now; or the first cannot start within the horizon, maybe for a pause; or each takes one unit, and some start within the horizon. Who is
-- left waits in a process that is counted already among those who wait, or can be where nothing else is known of the scope. The rest of
-- the script would answer alike. Here is read what is asked, who waits, and when the first could start.
local number, flags, scopes, widest = a[1], a[7], a[8], a[9]
local states, first_log, at = 1 + scopes - widest, 3 + scopes - widest, 10 + scopes
-- Log time, which is the server's clock but where that was corrected: the state of the whole upstream says so. And how much has passed
-- since what the sender knows.
local head, parts, is_read, correction = raw and sub(raw, 1, 16), nil, true, 0
local plain = a[4] == 0 and a[6] == 0 and flags % 16 < 2 and flags % 8192 < 4096
if plain and raw and head ~= NOBODY and head ~= SOMEBODY then
  is_read, parts = pcall(cmsgpack.unpack, raw)
  is_read = is_read and type(parts) == 'table' and type(parts[6]) == 'number'
  if is_read and parts[6] ~= 0 then correction, spelled = parts[6], nil end
end
local now = clock + correction
local passed = now - a[3]
plain = plain and is_read and passed >= 0
-- A message that came before, that came late, or that another process sent under the same name is not common.
local lapse, survived = 0, 0
if plain and record then
  local last, memory = read('<i8i8', record)
  if memory > now then plain, lapse, survived = last < number and (a[2] == 0 or a[2] == last), memory, last end
end

-- The logs, and behind them the only run: how many callers of which priority.
local logs, width, retention, newest_known, heard = { 0 }, #KEYS - first_log + 1, 0, 0, 0
if plain then
  for i = 1, width do
    local terms = plain and a[at + 1] or 0
    logs[i], plain = at, terms > 0
    -- A bucket is left to the rest of the script.
    for t = at + 3, at + 1 + 2 * terms, 2 do plain = plain and a[t] >= 0 end
    at = at + 2 + 2 * terms
  end
  -- Where something that the sender remembers is missing, the rest of the script looks.
  newest_known = at + 1
  plain, at = plain and a[at] <= survived, at + 2 + width
  -- Nor while others may not have heard of a loss.
  if plain and flags % 4096 >= 2048 then
    heard, plain, at = a[at], a[at + 2] == 0 and a[at] == a[at + 1] and a[at] + 6 * SECOND <= now, at + 3
  end
  plain = plain and a[at] == 0 and #a == at + 2 + width
end
local who = plain and a[at + 1] or 0
local callers, max_wait, charges = who % 4294967296, a[at + 2], at + 2
local priority = (who - callers) / 4294967296

-- Others who wait, of this priority or of higher ones, in the scope where most do; how far ahead it books beside them; in which period
-- the sender is counted; and a pause of its scope.
local horizon, others, counted, pause, released = a[5], 0, 0, false, false
local within, is_highest, lives, waits = horizon, true, nil, nil -- tables are made where there is anything
local weight, own = 1, 5 + priority
-- Where a process can be counted that is not in this period: the key of the state, who waits, whether their period has ended, whether it
-- was counted in the one before, what follows in the state, until when that matters, and whether a part of it does no more.
local place
for i = 2, plain and 1 + states or 1 do
  local packed, scope, all = raw, i - 2 + widest, nil
  if i > 2 then
    packed, parts = call('GET', KEYS[i]), nil
    head = packed and sub(packed, 1, 16)
  end
  if head == NOBODY or head == SOMEBODY and #packed > 88 then
    if head == SOMEBODY then all = { read(WAITING, packed, 17) } end
    local after, kept = cmsgpack.unpack_one(packed, all and 88 or 15)
    plain, lives = plain and after == -1 and (not all or not kept or type(kept) == 'string'), lives or { false }
    lives[scope] = plain and kept
  elseif packed then
    if not parts then is_read, parts = pcall(cmsgpack.unpack, packed) end
    plain = plain and is_read and type(parts) == 'table' and #parts == 15
      and #parts[1] + #parts[4] + #parts[5] + #parts[10] == 0 and (i == 2 or parts[6] == 0)
      and not (parts[2] or parts[7] or parts[8])
      and not (parts[12] and (parts[12][2] > now or (parts[12][4] or 0) > heard))
    -- Terms that nobody names but those who ask by the same change nothing.
    for _, list in ipairs(plain and parts[13] or {}) do
      for n = 1, list[2] > now and width or 0 do
        local from = list[1] == KEYS[first_log + n - 1] and logs[n] + 1
        for k = 0, from and 2 * a[from] or -1 do plain = plain and list[4 + k] == a[from + k] end
      end
    end
    local paused = plain and parts[3]
    all, lives = plain and parts[14] and { read(WAITING, parts[14]) }, lives or {}
    lives[scope], released = plain and parts[15], plain and i == 2 and parts[9] or released
    if paused and paused[5] > now then
      -- That of the whole upstream concerns each scope from another time on; and calls come slower after a pause.
      pause, plain = paused, scopes == 1 and scope == 1 and paused[1] > now and paused[6] <= now + MINUTE and not (i > 2 and released)
    end
  end
  if all then
    waits = waits or {}
    waits[scope] = all[1] + (all[4] + all[5] + all[6] > 0 and all[3] or 0) > now
  end
  if plain and all and scope > 0 then
    local known, has_ended, is_over, higher, equals = a[9 + scope], all[1] <= now, all[1] + all[3] <= now, 0, 0
    local ranks = 0
    plain, weight = all[1] - all[3] <= now, (flags % 2048 - flags % 16) / 16 + 1
    for of = 4, own do
      local count = is_over and 0 or has_ended and all[of] or all[of] + all[of + 3]
      if of < own then higher = higher + count else equals = count end
      if of < own and count > 0 then ranks = ranks + 1 end
    end
    if higher > 0 then
      local near = ranks > 1 and SLACK / 8 or SLACK
      within, is_highest = within < near and within or near, false
    end
    if known == all[1] + priority and all[own] > 0 and not has_ended and scopes == 1 and number > 0 then
      equals, counted = equals - (weight < all[own] and weight or all[own]), known
    else
      local before, at = has_ended and all[1] or all[2], has_ended and own or own + 3
      local was_counted = known ~= 0 and known == before + priority and all[at] > 0 and not is_over and scopes == 1 and number > 0
      if was_counted then equals = equals - (weight < all[at] and weight or all[at]) end
      plain = plain and (known == 0 or was_counted or math.abs(known - all[1]) > 1 and math.abs(known - all[2]) > 1)
      if head == SOMEBODY and scopes == 1 and number > 0 and flags % 16 == 0 and higher + equals > 0 then
        place = { key = KEYS[i], all = all, has_ended = has_ended, was_counted = was_counted, behind = sub(packed, 89), lapse = now }
      end
      plain = plain and (place or not was_counted)
    end
    if higher + equals > others then others = higher + equals end
  end
end
plain = plain and callers > 0 and (not pause or counted > 0)

-- Of a process that is counted, or can be, it matters when the first caller can start.
local can_wait = counted > 0 or place
local times, start, far, overfull = can_wait and 1 or callers, pause and pause[1] or now, pause and pause[1] or 9e15, false
local remembers, latest_kept = false, 9e15
for i = 1, plain and width or 0 do
  local key, from, units, quota, is_full = KEYS[first_log + i - 1], logs[i], a[charges + i] * times, 0, false
  local newest, known = call('LINDEX', key, '-1'), a[newest_known + i]
  local stamp = tonumber(newest or nil)
  plain = plain and units <= (pause and 1 or PIECE) and (not newest or stamp and stamp >= oldest and stamp < far)
    and known <= (stamp or 0)
  remembers = remembers or known > 0
  if plain and stamp and units > 0 and stamp > start then start = stamp end
  local counts, lasts = 0, nil -- for how long it counts at most; the latest start for which it is kept long enough
  for t = from + 2, plain and from + 2 * a[from + 1] or 0, 2 do
    local term, span = a[t], a[t + 1]
    if span > counts then counts = span end
    if units > 0 then
      local n = term - units + 1
      local entry, before = n == 1 and stamp, nil
      if n > 1 and stamp and units == 1 and can_wait then
        local two = call('LRANGE', key, format('%d', -n - 1), format('%d', -n))
        entry, before = two[#two], two[2] and two[1]
      elseif n > 1 and stamp then
        entry = call('LINDEX', key, format('%d', -n))
      end
      local time = entry and tonumber(entry)
      plain = plain and n > 0 and (not entry or time and time >= oldest and time < 9e15)
      -- Where more counts than its terms ever let start somebody may ask by others, and is to be told.
      if entry and can_wait and (n == 1 or units > 1) then before = call('LINDEX', key, format('%d', -term - 1)) end
      overfull = overfull or before and (tonumber(before) or 9e15) + span > (stamp > now and stamp or now)
      if plain and entry and time + span > start then start = time + span end
      if term > quota then quota = term end
      is_full = is_full or entry
    end
  end
  -- Where it counts for long, or callers wait, it must be known that the log is there, since before what the sender remembers.
  if counts > retention then retention = counts end
  local all, goes_on, patience = lives and lives[a[from]], counts > 10 * SECOND or waits and waits[a[from]], counts
  if goes_on then lasts = 0 end
  local since, longest, ends, log, next_at = 0, 0, 0, nil, 1
  while all and next_at <= #all do
    since, longest, ends, log, next_at = read(LASTING, all, next_at)
    if place then
      place.lapse, place.is_stale = math.max(place.lapse, ends), place.is_stale or ends <= now - 1000 * LEAP
    end
    if log == key and ends + 5 * SECOND > now then
      plain = plain and stamp and (known == 0 or known >= since)
      if longest > counts then patience = longest end
      if goes_on and longest == patience then lasts = ends + 5 * SECOND - patience end
    end
  end
  if plain and goes_on and (not stamp or stamp + patience > now) then
    plain = stamp and stamp <= lasts or not stamp and counts <= 10 * SECOND
  end
  if lasts and units > 0 and lasts < latest_kept then latest_kept = lasts end
  -- Where the state is written what matters no more is left out, and what is missing of a log is added: by the rest of the script.
  if place and not (not place.is_stale and stamp and (lasts or 0) > 0 and lasts <= stamp + 5 * SECOND) then
    plain, place = plain and not place.was_counted, nil
  end
  logs[i] = { key, stamp, from, counts }
  -- What has to be trimmed is left to the rest of the script.
  if plain and is_full and start == now then plain = call('LLEN', key) + units <= TRIM_QUOTAS * quota + TRIM_SLACK end
end
