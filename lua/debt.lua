-- Settling: takes out slots, and what calls did not use of theirs, and enters what calls used beyond their charges.
-- Joined behind shares.lua.

-- Fails where the tail of a log that a debt is entered in is no time, as long as nothing is written.
local function check_tails(logs, at)
  for i, log in ipairs(logs) do
    if a[at + i - 1] > 0 then stamp_of(call('LINDEX', log.key, '-1'), log.key) end
  end
end

-- Enters units at the tail of a log, beyond the quota if need be: later calls wait for them. With as many of one stamp as the largest
-- quota allows everybody waits for a whole span by every term, and more make nobody wait longer.
local function enter_debt(log, units)
  units = min(units, log.quota)
  if units <= 0 then return end
  local newest = stamp_of(call('LINDEX', log.key, '-1'), log.key)
  local tail, stamps, levels = max(now, newest or now), {}, {}
  for b, term in ipairs(log.buckets) do levels[b] = filled(level_of(log, term), tail, units, term.left.interval) end
  for i = 1, min(units, PIECE) do stamps[i] = format('%d', tail) end
  for from = 1, units, PIECE do
    log.length = call('RPUSH', log.key, unpack(stamps, 1, min(PIECE, units - from + 1)))
  end
  for b, term in ipairs(log.buckets) do
    keep_level(log, term.bucket, levels[b])
    term.levels = nil
  end
  local keep = expire(log.key, newest, tail, ceil(log.retention / 1000))
  log.kept = max(log.retention, ticks and keep * 1000 or 0)
end

-- Takes out the slots at a place of the arguments, then enters the debts at another, if there are any; says when the last slot starts, or
-- what time it is. Remembered first, with `empty`, as if nobody were granted anything: an entry that is no time ends this halfway, but
-- not before the debts are entered.
local function settle_slots(logs, states, first, count, debts, empty)
  local last, size, lapse_before = now, #logs + 2, lapse
  if debts then check_tails(logs, debts) end
  remember(MAX_MEMORY, struct.pack('<i8i8', 2, now) .. empty)
  lapse = lapse_before
  local is_read, fault = pcall(function()
    for slot = first, first + (count - 1) * size, size do
      last = max(last, a[slot])
      for i, log in ipairs(logs) do hand_back(log, a[slot], a[slot + 1 + i]) end
      if a[slot + 1] == 1 then not_looked(states, a[slot]) end
    end
  end)
  for i = 1, debts and #logs or 0 do enter_debt(logs[i], a[debts + i - 1]) end
  -- By the server's version what was caught is a table, or its text.
  if not is_read then error(type(fault) == 'table' and fault or redis.error_reply(fault)) end
  return last
end
