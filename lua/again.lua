-- Re-entry: after a loss of data who was granted starts in a log that counts them for long says them again, and they are entered as before.
-- Joined behind loss.lua.

-- The entries of a log from the first of some steps on, with those: how many there were, and all of them in their order. What would lie
-- deeper than a slot may be handed back is entered later than it starts: that is safe.
function lost.entered(log, steps)
  local key, deepest, starts, upto = log.key, nil, {}, {}
  deepest = stamp_of(call('LINDEX', key, format('%d', -MAX_DEPTH)), key)
  for _, step in ipairs(steps) do step.start = max(step.start, deepest or step.start) end
  local newer, next = newer_than(key, steps[1].start), 1
  local function enter(start, units) starts[#starts + 1], upto[#upto + 1] = start, (upto[#upto] or 0) + units end
  local function enter_steps(until_then)
    while steps[next] and steps[next].start < until_then do
      enter(steps[next].start, steps[next].units)
      next = next + 1
    end
  end
  local rest = newer
  while rest > 0 do
    local last = max(rest - PIECE, 0) + 1
    local found = call('LRANGE', key, format('%d', -rest), format('%d', -last))
    for i = 1, #found do
      local start = stamp_of(found[i], key)
      enter_steps(start)
      enter(start, 1)
    end
    rest = last - 1
  end
  enter_steps(math.huge)
  local before = stamp_of(call('LINDEX', key, '-1'), key)
  return { log = log, newer = newer, starts = starts, upto = upto, before = before, keep = ceil(log.retention / 1000) }
end

-- Enters again what a queue was granted before a loss, in each log that has lost it: what still counts, and was not forgotten by hand. Of
-- more than the largest quota the newest. The steps stand at `at` in the arguments. All is read before anything is written, and the message
-- is remembered first.
function lost.enter(states, at, count)
  local width, all = #logs, {}
  for i, log in ipairs(logs) do
    local loss, left, steps = lost.of(states[log.scope]), 0, {}
    for t = 1, log.own do left = max(left, log.terms[t].full) end
    local is_lost = loss and loss[4] and loss[4] > lost.heard and loss[4] <= lost.known
    for k = is_lost and count or 0, 1, -1 do
      local step = at + (k - 1) * (width + 1)
      local start, units = min(a[step], now + MAX_MEMORY), min(a[step + i], left)
      if units > 0 and start > (loss[3] or 0) and start + log.counts > now then
        left = left - units
        table.insert(steps, 1, { start = start, units = units })
      end
    end
    if steps[1] then
      -- Its queue may remember an earlier entry than it says: what lies close together is one step, and another may be too deep.
      local since = min(steps[1].start, a[lost.newest_at + i] > 0 and a[lost.newest_at + i] or 9e15)
      all[#all + 1] = lost.entered(log, steps)
      all[#all].since = since
      -- Its buckets are taken to have been full before them.
      local others = {}
      for k, part in ipairs(log.state.levels) do
        if log.state.levels[k - (k - 1) % LEVEL] ~= log.key then others[#others + 1] = part end
      end
      log.state.levels, log.state.loss[7], log.state.is_news = others, 1, true
    end
  end
  if all[1] then lost.remember_first() end
  for _, of in ipairs(all) do
    local log, key = of.log, of.log.key
    -- A list that is taken out as a whole forgets for how long it counts.
    local keep = of.before and expire(key, of.before, of.keep, 0) or of.keep
    if of.newer > 0 then call('LTRIM', key, '0', format('%d', -of.newer - 1)) end
    local newest = of.starts[#of.starts]
    push_runs(key, of.starts, of.upto, #of.starts)
    expire(key, newest, keep, 0)
    if log.counts > 10 * SECOND or life.at(log.state, key) then life.keep(log, log.state, newest, of.since) end
  end
end
