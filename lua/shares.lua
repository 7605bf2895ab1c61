-- Who gets a slot. `logs` are those of the ask, in its order; `charges` are units of each of them. Joined behind log.lua.
local logs, scopes, has_widest = {}, a[8], a[9] == 1

-- The rule over all logs, or those of one scope: one common start. A log of which nothing is taken does not matter.
local function earliest_of(start, charges, scope)
  local rounds, before = 1, nil
  for _ = 1, ROUNDS do
    before = start
    for i = 1, #logs do
      local log = logs[i]
      if charges[i] > 0 and (not scope or log.scope == scope) then
        start = earliest(log, start, charges[i])
        if log.has_calendar then rounds = ROUNDS end
      end
    end
    if rounds == 1 or start == before then break end
  end
  return start
end

local function add(start, charges, callers)
  for i = 1, #logs do
    local log, units = logs[i], charges[i] * callers
    if units > 0 then
      for _, term in ipairs(log.buckets) do term.filled = term.filled and min(term.filled, log.runs) end
      log.runs, log.count = log.runs + 1, log.count + units
      log.added[log.runs], log.upto[log.runs] = start, log.count
    end
  end
end

-- Undoes what is added meanwhile.
local function tentatively(attempt)
  local kept = {}
  for i, log in ipairs(logs) do kept[2 * i - 1], kept[2 * i] = log.runs, log.count end
  local outcome = attempt()
  for i, log in ipairs(logs) do log.runs, log.count = kept[2 * i - 1], kept[2 * i] end
  return outcome
end

-- Whether a call that could start then waits for a log that fewer callers share than another of its logs: booked far ahead there, it
-- would keep the others from what they could use before.
local function waits_for_fewer(soonest, slack, start, charges)
  if scopes < 2 or start <= soonest + slack then return false end
  -- All who share any other log share the widest, too.
  local widest = has_widest and earliest_of(soonest, charges, 1) or soonest
  for scope = 1, scopes do
    if start > max(earliest_of(soonest, charges, scope), widest) + slack then return true end
  end
  return false
end

-- Whether so many units of a log could start by the limit, each with as much of the scope's other logs as one of these charges.
local function could_start(scope, charges, measure, units, soonest, limit)
  local start, one = soonest, charges[measure]
  for i = 1, #logs do
    local log = logs[i]
    local scaled = log.scope == scope and ceil(charges[i] * units / one) or 0
    if scaled > log.least then return false end
    if scaled > 0 then start = earliest(log, start, scaled) end
  end
  return start <= limit
end

-- How many callers of these charges the rate of a scope's limits lets start within a time, one after another; and for how many of them a
-- quarter of each quota is enough.
local function at_rate(scope, charges, span)
  local most, in_a_quarter = math.huge, math.huge
  for i, log in ipairs(logs) do
    for _, term in ipairs(log.scope == scope and charges[i] > 0 and log.terms or {}) do
      local units = term.bucket and 1000 * span / term.left.interval or term.quota * span / term.span
      most, in_a_quarter = min(most, floor(floor(units) / charges[i])), min(in_a_quarter, floor(floor(term.quota / 4) / charges[i]))
    end
  end
  return most, in_a_quarter
end

-- How large a call is beside others: the parts that it takes of all quotas, together. So of two that differ in one unit alone one is
-- smaller.
local function size_of(charges)
  local size = 0
  for i, log in ipairs(logs) do size = size + charges[i] / log.least end
  return size
end

-- Whether a call takes something of a scope's logs.
local function takes_of(scope, charges)
  for i, log in ipairs(logs) do
    if log.scope == scope and charges[i] > 0 then return true end
  end
  return false
end

-- A share of what is free in a scope's logs until the limit, for callers of a priority, among those who wait and have it, or a higher one;
-- `weights` are those of others. Counted in units of one log, of which callers of higher priority may have taken some. Nil where all
-- is theirs. Half of it by its part of all weights, half as if it were so many processes, each with an equal part of what others left.
--
-- Another unit may be taken as long as, if all had as much, one more unit could start until then: together with all of them, or one after
-- another at the rate of the limits. And no less than its part of a quarter of the quota, where nobody of a higher priority waits. Of the
-- priority's runs those from the first on that can start until the limit.
local function share_of(scope, priority, runs, weights, soonest, limit, is_highest, from)
  local measure, wanted, first, last, size, at = nil, 0, nil, nil, 0, nil
  for r, run in ipairs(runs) do
    if run.priority == priority and r >= (from or 1) and takes_of(scope, run.charges) then first, at, last = first or run, at or r, run end
  end
  for i, log in ipairs(first and logs or {}) do
    local units = log.scope == scope and first.charges[i] or 0
    if units > 0 and (not measure or units / log.least > size) then measure, size = i, units / log.least end
  end
  if not measure then return nil end
  for _, run in ipairs(runs) do
    if run.priority <= priority then wanted = wanted + run.callers * run.charges[measure] end
  end
  local part, whole, left = 1, weights + weight, 1000000
  if weight > 1 then
    for _ = 1, weight do left = floor(left * (whole - 1) / whole) end
    part, whole = floor((1000000 - left + floor(1000000 * weight / whole)) / 2), 1000000
  end
  local function may_take(spent)
    return could_start(scope, first.charges, measure, floor(spent * whole / part) + 1, soonest, limit)
  end
  local over = max(wanted - last.charges[measure], 0)
  if over == 0 or may_take(over) then return nil end
  local start, units = earliest_of(soonest, first.charges, scope), 0
  -- Who wants as much as one that cannot start waits as well.
  local smallest = start > limit and size_of(first.charges)
  for r = at + 1, start > limit and #runs or 0 do
    local run = runs[r]
    if run.priority == priority and takes_of(scope, run.charges) and size_of(run.charges) < smallest then
      if earliest_of(soonest, run.charges, scope) <= limit then
        return share_of(scope, priority, runs, weights, soonest, limit, is_highest, r)
      end
      smallest = size_of(run.charges)
    end
  end
  if start <= limit then
    local least, in_a_quarter = at_rate(scope, first.charges, limit - start)
    if is_highest then least = max(least, in_a_quarter) end
    units = ceil((least + 1) * first.charges[measure] * part / whole)
  end
  -- Mostly it is a small part of what is wanted.
  local step = 1
  while units < over do
    local spent = min(units + step - 1, units + floor((over - units) / 2))
    if may_take(spent) then units, step = spent + 1, 2 * step else over = spent end
  end
  return { scope = scope, priority = priority, units = units, measure = measure, spent = 0 }
end

-- As many callers of these charges, of so many, as can all start at the start of the first: not while a pause, or outside use, lets them
-- come one after another, nor beside cold calls, whose steps may count for somewhat longer than each of them.
local function as_many_as_start(charges, callers, soonest, start)
  for i, log in ipairs(logs) do
    if charges[i] > 0 and log.has_cold then return 1 end
    for _, pause in ipairs(charges[i] > 0 and log.pauses or {}) do
      if start < pause[1] + pause[2] then return 1 end
    end
    for _, term in ipairs(charges[i] > 0 and log.terms or {}) do
      if term.outside and start < term.outside.lapse + term.base then return 1 end
    end
  end
  local function could_all_start(count)
    for i = 1, #logs do
      local log, units = logs[i], charges[i] * count
      if units > 0 and (units > log.least or earliest(log, soonest, units) > start) then return false end
    end
    return true
  end
  if callers < 2 or not could_all_start(2) then return 1 end
  if callers == 2 or could_all_start(callers) then return callers end
  local count, over = 2, callers
  while count + 1 < over do
    local middle = floor((count + over) / 2)
    if could_all_start(middle) then count = middle else over = middle end
  end
  return count
end

-- While a pause is over, and calls come slower, slots are booked so many times less far ahead.
local function slower_after_pause(states)
  for _, state in ipairs(states) do
    for _, pause in ipairs(state.pauses) do
      if pause[1] <= now and now < pause[1] + pause[2] then return 4 end
    end
  end
  return 1
end

-- The call that was to look at a pause then did not: another may look at once.
local function not_looked(states, start)
  local function of(state)
    local pause = state.pause
    if pause and pause[5] > now and pause[6] <= now + MINUTE and pause[10] == start then
      pause[1], pause[10] = max(start, now), 0
      save(state, now)
    end
  end
  for _, state in ipairs(states) do of(state) end
  of(upstream)
  for _, state in ipairs(states) do state.pauses = pauses_of(state) end
  for _, log in ipairs(logs) do log.pauses = states[log.scope].pauses end
end

-- Whether a call of these charges that starts then looks whether a pause still holds: then nobody else does for a while.
local function look_at_pauses(states, charges, start)
  local function is_looked_at(pause) return pause[8] > max(start, pause[1]) end
  local looks, charged = false, {}
  for i, log in ipairs(logs) do
    for _, pause in ipairs(charges[i] > 0 and log.pauses or {}) do looks = looks or is_looked_at(pause) end
    charged[log.scope] = charged[log.scope] or charges[i] > 0
  end
  if not looks then return false end
  local function look(state)
    local pause = state.pause
    if pause_of(state) and is_looked_at(pause) then
      pause[1], pause[10], state.looked = min(start + max(pause[9], 1), pause[8]), start, true
    end
  end
  for scope, state in ipairs(states) do
    if charged[scope] then look(state) end
    look(upstream)
  end
  for _, state in ipairs(states) do state.pauses = pauses_of(state) end
  for _, log in ipairs(logs) do log.pauses = states[log.scope].pauses end
  return true
end

-- Whether a share is spent of which a caller of a run would take some, in any scope or in one.
local function is_spent(shares, run, scope)
  for _, share in ipairs(shares) do
    local counts = share.priority == run.priority and share.spent >= share.units and (not scope or share.scope == scope)
    if counts and takes_of(share.scope, run.charges) then return true end
  end
  return false
end

-- So many callers of a run, that no share of theirs is spent before the last.
local function within_shares(shares, run, callers)
  for _, share in ipairs(shares) do
    local one = share.priority == run.priority and run.charges[share.measure] or 0
    if one > 0 then callers = min(callers, ceil((share.units - share.spent) / one)) end
  end
  return callers
end

-- What the callers are told: verdict, start and callers of each answer, equal neighbours together.
local answers = {}
local function answer(verdict, start, count)
  local last = #answers
  if last > 0 and answers[last - 2] == verdict and answers[last - 1] == start then
    answers[last] = answers[last] + count
  else
    answers[last + 1], answers[last + 2], answers[last + 3] = verdict, start, count
  end
end

-- Tells every refused caller its own time: when it could go after all those before it had gone.
local function tell_times(refused, floor)
  local told, r = answers, 1
  answers = {}
  tentatively(function()
    for i = 1, #told, 3 do
      local run = refused[r]
      if run and run.after == i - 1 then
        for _ = 1, run.callers do
          local start = earliest_of(floor, run.charges)
          add(start, run.charges, 1)
          answer(0, start, 1)
        end
        r = r + 1
      else
        answer(told[i], told[i + 1], told[i + 2])
      end
    end
  end)
end
