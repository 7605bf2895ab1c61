-- Lost data: what a sender remembers, and the store holds no more. Joined behind debt.lua.

-- Whether the message is there that the sender says must be, for `memory` µs; nil where it says none, or it need not be any more.
function lost.still_has(memory)
  if lost.number == 0 then return nil end
  if lost.number <= lost.survived then return true end
  -- Who was cut off or suspended says late what need not be remembered any more. So does whoever asks first when the clock has leapt: a
  -- loss of that time would last until then. Of the 11 s for which an answer is kept longer than it must be 5 are counted on.
  if lost.told + min(memory, MAX_MEMORY) + 5 * SECOND > now then return false end
  return nil
end

-- Notes what is missing of what an ask remembers, at `at` in the arguments. Nobody starts then until all counts no more that may be lost:
-- what started before, and what was booked ahead. What a loss that is known explains is no news. Says where that part ends.
function lost.note(states, at)
  local told, reach, memory = a[at + 1], a[5] + a[6], 0
  for _, log in ipairs(logs) do memory = max(memory, log.counts) end
  lost.number, lost.told, lost.memory = a[1] > 0 and a[at] or 0, told, memory
  local still_has = lost.still_has(memory)
  -- No longer window is waited for where all data was lost, nor one beyond a minute where only the log was evicted: the message is there.
  local longest = (still_has and 62 or 10) * SECOND
  for i, log in ipairs(logs) do
    local state, newest, counts, retention = states[log.scope], min(a[at + 1 + i], now + MAX_MEMORY), 0, 0
    for t = 1, log.own do
      local term = log.terms[t]
      if term.base <= longest then counts, retention = max(counts, term.base), max(retention, term.span) end
    end
    if counts > 0 then
      local known, settles = state.loss and lapse_of.loss(state.loss) > now and state.loss, 0
      local is_news = still_has == false and not (known and told <= known[1])
      local there = max(stamp_of(call('LINDEX', log.key, '-1'), log.key) or 0, known and known[3] or 0)
      if newest > 0 and newest + counts > now and newest > there then
        is_news, settles = is_news or not (known and newest < known[2]), newest + retention
      end
      if is_news then settles = max(settles, now + reach + retention) end
      if settles > 0 then
        local noted = state.noted or known or { 0, 0, 0 }
        state.noted = { is_news and now or noted[1], max(noted[2], settles), noted[3] or 0 }
      end
    end
  end
  for _, state in ipairs(states) do
    if state.noted then
      state.loss = state.noted
      save(state, now)
    end
  end
  for _, log in ipairs(logs) do log.settles = log.state.loss and log.state.loss[2] or 0 end
  return at + 2 + #logs
end

-- What an answer says where nobody starts yet for that, or no seat is given.
function lost.flag(states)
  if lost.is_closed then return 4 end
  for _, state in ipairs(states) do
    if state.loss and state.loss[2] > now then return 4 end
  end
  return 0
end
