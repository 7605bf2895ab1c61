-- The commonest ask, answered before anything else is set up: callers of one kind, one log, room for all of them now, and nothing
-- told, claimed or asked by others. Joined in front of the prelude and of book.lua, which answer every other ask, and would
-- answer this one alike.

-- How many of the keys beside the log there are, where somebody has looked.
local present
do
  local seen_key, told_key, told_all_key, claim_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
  local asking_key, reach_key, clock_key, log_key = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
  local run = 12 + 2 * ARGV[11]
  local alone = ARGV[7] == '0' and ARGV[9] == '' and ARGV[10] == '0' and not KEYS[9] and not ARGV[run + 3]
  local callers, cost = tonumber(ARGV[run]), tonumber(ARGV[run + 2])
  local MAX_MEMORY, TRIM_SLACK, PIECE, LEAP = 60000000, 64, 1000, 11000

  if callers and alone and callers * cost >= 1 and callers * cost <= PIECE then
    present = redis.call('EXISTS', told_key, told_all_key, claim_key, asking_key, reach_key, clock_key)
  end
  if present == 0 then
    -- The stamp as text is put together from what the server tells: to format a number takes as long as a command.
    local number, now, units, time, oldest = tonumber(ARGV[2]), tonumber(ARGV[1]), callers * cost, nil, -9e15
    if not now then
      time, oldest = redis.call('TIME'), 1e15
      now = time[1] * 1000000 + time[2]
    end

    -- Decide. A log with an entry that is no time is left to the others, who say so.
    local last = redis.call('LINDEX', log_key, '-1')
    local newest = tonumber(last or nil)
    local room, long, retention, largest = not last or (newest and newest >= oldest and newest <= now), false, 0, 0
    room = room and now >= (tonumber(ARGV[8]) or now)
    for at = 12, run - 1, 2 do
      local quota, span = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
      local n = quota - units + 1
      local found, entry = last, newest
      if newest and n > 1 then
        found = redis.call('LINDEX', log_key, -n)
        entry = tonumber(found or nil)
      end
      room = room and n > 0 and (not found or (entry and entry >= oldest and entry + span <= now))
      if entry then long = true end
      if span > retention then retention = span end
      if quota > largest then largest = quota end
    end
    -- What has to be trimmed is left to the others.
    if room and long then room = redis.call('LLEN', log_key) + units <= largest + TRIM_SLACK end

    -- Write.
    if room then
      local stamp = now + math.min(retention + ARGV[5], MAX_MEMORY)
      local told, old = cmsgpack.pack({ number, stamp, now, 1, now, callers }), nil
      if time then
        old = redis.call('SET', seen_key, told, 'PX', math.ceil((stamp - now) / 1000), 'GET')
      else
        old = redis.call('SET', seen_key, told, 'GET')
      end
      if old then
        -- Until when the message before is remembered, where this is the same, a late one, one to be remembered for less long, or
        -- comes from another process of the same name.
        local function lasting(record, previous)
          local seen = cmsgpack.unpack(record)
          local other = seen[1] >= number or (previous > 0 and previous ~= seen[1])
          return seen[2] > now and (other or seen[2] > stamp) and seen[2]
        end
        local readable, lapse = pcall(lasting, old, tonumber(ARGV[3]))
        if not readable or lapse then
          -- What nobody can read is put back as well: else this message would look answered when it comes again.
          redis.call('SET', seen_key, old)
          if time then redis.call('PEXPIRE', seen_key, math.ceil((readable and lapse - now or MAX_MEMORY) / 1000)) end
          room = false
        end
      end
    end
    if room then
      local entry = time and time[1] .. string.sub('00000' .. time[2], -6) or string.format('%.0f', now)
      local keep = math.ceil(retention / 1000) + 1
      if time and newest then
        local expiry = redis.call('PEXPIRETIME', log_key)
        if expiry > 0 then keep = math.max(keep, expiry - LEAP - math.floor(newest / 1000)) end
      end
      if units == 1 then
        redis.call('RPUSH', log_key, entry)
      else
        local entries = {}
        for i = 1, units do entries[i] = entry end
        redis.call('RPUSH', log_key, unpack(entries))
      end
      if time then
        -- Seconds, which tostring keeps, and the milliseconds beyond them.
        local ms = math.floor(time[2] / 1000) + keep + LEAP
        redis.call('PEXPIREAT', log_key, time[1] + math.floor(ms / 1000) .. string.sub('00' .. ms % 1000, -3))
      end
      return { now, number, 0, 0, 0, 0, 1, 0, callers }
    end
  end
end
