-- Whose turn it is: callers that wait, each with what it takes of the ask's logs, and its start. Joined behind shares.lua.
local settle, delayed, together, start_beside

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

  -- The latest of the first turns, so many of them, that so many calls of these charges would delay, or one.
  function delayed(turns, before, start, charges, callers)
    if before == 0 then return nil end
    return tentatively(function()
      local last
      add(start, charges, callers or 1)
      for _, turn in ipairs(in_time(turns, before)) do
        local delayed_start = earliest_of(turn.start, turn.charges)
        if delayed_start > turn.start then last = turn.start end
        add(delayed_start, turn.charges, 1)
      end
      return last
    end)
  end

  -- As many callers of a run, of so many, as can all start then and delay none of the turns before them: the first does not.
  function together(turns, before, run, callers, soonest, start)
    -- The others come after all turns.
    if before < turns_before(turns, run.priority) then return 1 end
    local count, over = 1, as_many_as_start(run.charges, callers, soonest, start)
    if over == 1 or not delayed(turns, before, start, run.charges, over) then return over end
    while count + 1 < over do
      local middle = floor((count + over) / 2)
      if delayed(turns, before, start, run.charges, middle) then over = middle else count = middle end
    end
    return count
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
      start, count = between(sorted, count, alone, charges), count + 1
    until start
    return start
  end
end
