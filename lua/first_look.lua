-- The commonest ask, decided at a glance: callers of one kind, all of whom can start now, while nobody waits and nothing is in force. The
-- rest of the script would answer it alike.
do
  local scopes, widest = a[8], a[9]
  local states, first_log = 1 + scopes - widest, 3 + scopes - widest
  local width = #KEYS - first_log + 1
  local at = 10 + scopes
  local plain = not raw and a[3] <= clock and a[4] == 0 and a[6] == 0
  for i = 3, plain and 1 + states or 0 do plain = plain and not call('GET', KEYS[i]) end
  -- A message that came before, that came late, or that another process sent under the same name is not common.
  local lapse = 0
  if plain and record then
    local last, memory = struct.unpack('<i8i8', record)
    if memory > clock then
      plain, lapse = last < a[1] and (a[2] == 0 or a[2] == last), memory
    end
  end

  local logs, retention = {}, 0
  if plain then
    for i = 1, width do
      logs[i] = at
      at = at + 2 + 2 * a[at + 1]
    end
    plain = a[at] == 0 and #a == at + 2 + width and a[at + 1] > 0
  end
  local callers, charges = a[at + 1], at + 2
  for i = 1, plain and width or 0 do
    local key, from, units, quota, full = KEYS[first_log + i - 1], logs[i], a[charges + i] * callers, 0, false
    local newest = call('LINDEX', key, '-1')
    local stamp = tonumber(newest or nil)
    plain = plain and units <= PIECE and (not newest or stamp and stamp >= oldest and stamp <= clock)
    for t = from + 2, plain and units > 0 and from + 2 * a[from + 1] or 0, 2 do
      local n, span = a[t] - units + 1, a[t + 1]
      local entry = n == 1 and stamp or n > 1 and stamp and call('LINDEX', key, format('%d', -n))
      if entry then
        local counts = tonumber(entry)
        full, plain = true, plain and counts and counts >= oldest and counts + span <= clock
      end
      plain = plain and n > 0
      quota = max(quota, a[t])
    end
    for t = from + 2, plain and from + 2 * a[from + 1] or 0, 2 do retention = max(retention, a[t + 1]) end
    -- What has to be trimmed is left to the rest of the script.
    plain = plain and (not full or call('LLEN', key) + units <= 2 * quota + TRIM_SLACK)
    logs[i] = { key, units, stamp, from }
  end

  if plain then
    local stamp = format('%d', clock)
    for _, log in ipairs(logs) do
      local key, units, newest, from = log[1], log[2], log[3], log[4]
      if units == 1 then
        call('RPUSH', key, stamp)
      elseif units > 1 then
        local stamps = {}
        for i = 1, units do stamps[i] = stamp end
        call('RPUSH', key, unpack(stamps))
      end
      local span = 0
      for t = from + 3, from + 1 + 2 * a[from + 1], 2 do span = max(span, a[t]) end
      if units > 0 then expire(key, newest, clock, ceil(span / 1000)) end
    end
    if a[1] > 0 then
      lapse = max(lapse, clock + min(retention + a[5], MAX_MEMORY))
      local ms = ticks and ceil((lapse - clock) / 1000) or LONGEST
      call('PSETEX', KEYS[1], format('%d', ms), struct.pack('<i8i8i8i8', a[1], lapse, 3, clock))
    end
    local elapsed = clock - a[3]
    if elapsed < 1099511627776 then return elapsed * 4096 + a[1] % 4096 end
    return struct.pack('<i8i8i8i8', a[1], clock, 3, clock)
  end
end
