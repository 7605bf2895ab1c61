-- Settling, where an ask tells debts: takes out slots, and what calls did not use of theirs, then enters what calls used beyond their
-- charges. Joined behind shares.lua. Made only where it is needed: to make a function takes its time.
local settle_slots = a[7] % 8 >= 4 and function(logs, states, first, count, debts)
  -- A tail that is no time is found before anything is written.
  for i, log in ipairs(logs) do
    if a[debts + i - 1] > 0 then stamp_of(call('LINDEX', log.key, '-1'), log.key) end
  end
  -- Remembered first, as if nobody were granted anything: an entry that is no time ends this halfway, but not before debts are entered.
  local last, fault = now, false
  lost.remember_first()
  for slot = first, first + (count - 1) * (#logs + 2), #logs + 2 do
    last = max(last, a[slot])
    for i, log in ipairs(logs) do
      local is_read, found = pcall(hand_back, log, a[slot], lost.may_be(log, a[slot]) and 0 or a[slot + 1 + i])
      fault = fault or not is_read and found
    end
    if a[slot + 1] == 1 then not_looked(states, a[slot]) end
  end

  -- At the tail of each log, beyond the quota if need be: later calls wait for it. With as many of one stamp as the largest quota allows
  -- everybody waits for a whole span by every window, and more make nobody wait longer; the level of a bucket takes the rest as well.
  for i, log in ipairs(logs) do
    local units = min(a[debts + i - 1], log.quota)
    local newest = units > 0 and stamp_of(call('LINDEX', log.key, '-1'), log.key)
    local tail, levels = max(now, newest or now), {}
    for b, term in ipairs(units > 0 and log.buckets or {}) do
      local bucket, left = term.bucket, term.left
      local level = filled(read_by(level_of(log, term), bucket, left), tail, units, bucket.interval)
      local rest = a[debts + i - 1] - units
      if rest > 0 then
        level.left, level.slowed = min(level.left + rest * bucket.interval, MOST), min(level.slowed + rest * left.interval, MOST)
        level.since = level.at
      end
      levels[b] = level
    end
    log.length = push_runs(log.key, { tail }, { units }, 1)
    for b, level in ipairs(levels) do
      keep_level(log, log.buckets[b].bucket, level)
      log.buckets[b].levels = nil
    end
    local keep = units > 0 and expire(log.key, tail, ceil(log.retention / 1000), units)
    log.kept = max(log.retention, keep and ticks and keep * 1000 or 0)
  end
  -- By the server's version what was caught is a table, or its text.
  if fault then error(type(fault) == 'table' and fault or redis.error_reply(fault)) end
  return last
end
