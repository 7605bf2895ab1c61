-- Whose turn it is: callers that wait, each with what it takes of the ask's logs, and its start. Joined behind shares.lua.
local settle, delayed, start_beside
-- To see whether a caller delays those who wait takes as long as they have units: once an ask has looked at so many, nobody goes before
-- them.
local MAX_LOOKED_AT, looked_at = 200000, 0

-- So many of the turns are of a priority, or of higher ones: those come first.
local function turns_before(turns, priority)
  local before = 0
  for _, turn in ipairs(turns) do before = before + (turn.priority <= priority and 1 or 0) end
  return before
end

do
  -- The first turns, so many of them, in the order of time, once they are settled.
  local function in_time(turns, count)
    local sorted = {}
    for t = 1, count do
      local turn, place = turns[t], t
      while place > 1 do
        local other = sorted[place - 1]
        if other.priority < turn.priority or (other.priority == turn.priority and other.start <= turn.start) then break end
        sorted[place], place = other, place - 1
      end
      sorted[place] = turn
    end
    return sorted
  end

  local function latest(turns, count)
    local start
    for t = 1, count do start = max(start or 0, turns[t].start) end
    return start
  end

  -- Whether an ask has looked at too many units, once it has looked at those of the first turns.
  local function has_seen_enough(turns, count)
    for t = 1, count do
      for _, units in ipairs(turns[t].charges) do looked_at = looked_at + units end
    end
    return looked_at > MAX_LOOKED_AT
  end

  -- Lets each turn start no sooner than those of higher priority, and those of its own that start before it.
  function settle(turns)
    if not turns[1] then return end
    tentatively(function()
      for _, turn in ipairs(in_time(turns, #turns)) do
        turn.start = earliest_of(turn.start, turn.charges)
        add(turn.start, turn.charges, 1)
      end
    end)
  end

  -- The latest of the first turns, so many of them, that a call of these charges would delay.
  function delayed(turns, before, start, charges)
    if before == 0 then return nil end
    if has_seen_enough(turns, before) then return latest(turns, before) end
    return tentatively(function()
      local last
      add(start, charges, 1)
      for _, turn in ipairs(in_time(turns, before)) do
        local delayed_start = earliest_of(turn.start, turn.charges)
        if delayed_start > turn.start then last = turn.start end
        add(delayed_start, turn.charges, 1)
      end
      return last
    end)
  end

  -- When a call of these charges starts behind so many turns that are settled, if it delays none of the rest.
  local function between(sorted, count, floor, charges)
    return tentatively(function()
      for t = 1, count do add(sorted[t].start, sorted[t].charges, 1) end
      local start = earliest_of(floor, charges)
      add(start, charges, 1)
      for t = count + 1, #sorted do
        local turn = sorted[t]
        if earliest_of(turn.start, turn.charges) > turn.start then return nil end
        add(turn.start, turn.charges, 1)
      end
      return start
    end)
  end

  -- The earliest start of a caller that waits, of which none of the first turns hears: a place among theirs that they leave.
  function start_beside(turns, before, soonest, charges)
    local alone, sorted, count, start = earliest_of(soonest, charges), in_time(turns, before), 0, nil
    while sorted[count + 1] and sorted[count + 1].start <= alone do count = count + 1 end
    repeat
      if has_seen_enough(turns, before) then count = before end
      start, count = between(sorted, count, alone, charges), count + 1
    until start
    return start
  end
end
