-- Lost data: what a sender remembers, and the store holds no more. Joined behind debt.lua.

-- A message and a log are kept for 11 s longer than they must be, as the clock may leap ahead: so much of that is counted on.
lost.BEYOND = 5 * SECOND

-- For so long nobody starts after a loss in a log that counts for longer than is waited for: a queue in which callers wait asks every 5 s,
-- hears of it, and says what it was granted in its next message.
lost.SETTLING = 6 * SECOND

-- Whether the message is there that the sender says must be, for `memory` µs; nil where it says none, or it need not be any more.
function lost.still_has(memory)
  if lost.number == 0 then return nil end
  if lost.number <= lost.survived then return true end
  -- Who was cut off or suspended says late what need not be remembered any more. So does whoever asks first when the clock has leapt: a
  -- loss of that time would last until then.
  if lost.told + min(memory, MAX_MEMORY) + lost.BEYOND > now then return false end
  return nil
end

-- Remembers the message before it has acted, as if nobody were granted anything.
function lost.remember_first()
  local lapse_before, rest = lapse, (a[7] % 16 >= 8 and 7 or 5) + a[8]
  remember(MAX_MEMORY, struct.pack('<i8i8', 2, now) .. string.rep('\0', 8 * rest))
  lapse = lapse_before
end

-- The last loss of a scope, as long as it matters.
function lost.of(state) return state.loss and lapse_of.loss(state.loss) > now and state.loss end

-- Has each log that counts for long say in front of its entries when the last loss of its scope was seen, as long as anything of before it
-- counts: what the scope knows of that may be evicted before all have heard of it, and the log not. Behind all that writes to logs, as it
-- is trimmed away, and what is evicted whole has nothing that it could stand in front of before somebody enters something.
function lost.mark(logs)
  for _, log in ipairs(logs) do
    local loss = log.counts > 10 * SECOND and lost.of(log.state)
    local seen = loss and loss[4] or 0
    local first = seen + log.counts > now and call('LINDEX', log.key, '0')
    local before = mark_of(first)
    if first and before ~= seen then
      call('LPUSH', log.key, format('L%d', seen))
      -- Only now: where nothing else is in it the log would go, and its expiry with it.
      if before then call('LREM', log.key, '1', first) end
    end
  end
end

-- Notes what is missing of what an ask remembers. Nobody starts then until all counts no more that may be lost, of windows of up to 10 s:
-- what started before, and what was booked ahead. What counts for longer is entered again. What a loss that is known explains is no news.
-- From `at` on the arguments say: a message that the store must remember or 0, the log time told then or last under another name, for each
-- log the newest entry that must be there or 0, or, below 0, until when others may have sent by themselves; where there is such a log,
-- when the sender lost the store; where it has heard of a loss, that for which it said last what it was granted or 0, the last of which it
-- has heard, count of steps that were granted before, of each: start, units by log. Says where that ends.
function lost.note(states, at)
  local told, reach, memory, width = a[at + 1], a[5] + a[6], 0, #logs
  local lost_at = a[7] % 8192 >= 4096 and a[at + 2 + width]
  local behind = at + 2 + width + (lost_at and 1 or 0)
  local again = floor(a[7] / 2048) % 2 == 1 and behind
  lost.newest_at = at + 1
  lost.heard, lost.known, lost.again = again and a[again] or 0, again and a[again + 1] or 0, again and a[again + 2] or 0
  for _, log in ipairs(logs) do memory = max(memory, log.counts) end
  lost.number, lost.told, lost.memory = a[1] > 0 and a[at] or 0, told, memory
  local remembers = false
  local still_has = lost.still_has(memory)
  -- The newest entry of any log that was booked before the sender lost the store.
  local booked = 0
  for _, log in ipairs(lost_at and logs or {}) do
    local before = log.counts > 0 and call('LINDEX', log.key, format('%d', -newer_than(log.key, lost_at) - 1))
    booked = max(booked, stamp_of(before, log.key) or 0)
  end
  -- Its queue has heard of a loss just now that no scope knows of: what knew of it was lost as well.
  local heard = lost.known + lost.SETTLING > now and lost.known
  for _, state in ipairs(states) do
    local known = lost.of(state)
    heard = heard and (not known or (known[4] or 0) < heard) and heard
  end
  for i, log in ipairs(logs) do
    local state, newest, counts, retention = states[log.scope], min(math.abs(a[at + 1 + i]), now + MAX_MEMORY), log.counts, 0
    local at_life = counts > 0 and life.at(state, log.key)
    for t = 1, log.own do
      if log.terms[t].base <= 10 * SECOND then retention = max(retention, log.terms[t].span) end
    end
    local is_long = counts > 10 * SECOND
    if counts > 0 and (still_has == false or newest > 0 or heard or is_long or at_life) then
      local known, settles = lost.of(state), 0
      local tail = stamp_of(call('LINDEX', log.key, '-1'), log.key)
      -- Of one that is gone it may be known for how long it counts for whoever is most patient.
      local patience = at_life and not tail and max(counts, state.lives[at_life + 2]) or counts
      is_long = patience > 10 * SECOND
      if patience > counts and not is_long then retention = max(retention, patience) end
      -- Whoever booked what counts still has reached the store too lately for anybody to have sent by itself.
      if a[at + 1 + i] < 0 and booked > 0 and booked + counts > now then newest = 0 end
      remembers = remembers or a[at + 1 + i] > 0
      local seen = known and known[4] or 0
      -- The log knows more than its scope where what that knew was evicted: then it is not known either since when the log is there.
      local mark = is_long and not at_life and mark_of(call('LINDEX', log.key, '0')) or 0
      local hears_of = mark > max(heard or 0, seen) and mark + counts > now and mark or heard
      -- Who counts for short alone has asked nobody to say anything again.
      local explained = known and (is_long and max(seen, known[3] or 0) or known[1])
      local is_news = still_has == false and not (known and told <= explained)
      local there = max(tail or 0, known and known[3] or 0)
      -- It was lost and begun anew since.
      local told_of = a[9 + log.scope]
      local is_older = a[at + 1 + i] > 0 and at_life and newest > (known and known[3] or 0) and newest < state.lives[at_life + 1]
      local is_missing = newest > 0 and newest + counts > now and (newest > there or is_older)
      -- Of an empty log it is known that it must be there; or its sender was counted among those who wait for it, must be so still, and
      -- nobody is.
      local waits_any = state.contenders and lapse_of.contenders(state.contenders) > now
      local has_waited = told_of + min(least_period(log), 10 * SECOND) > now
      local is_gone = at_life or is_long and not known and has_waited and not waits_any
      -- Of a short one whoever was granted something of it knows that for longer than it counts. What others may have sent in an outage,
      -- is named by a time of after all answers.
      if not is_long and newest + counts <= now and newest + counts + lost.BEYOND > now and newest <= told + reach then
        is_gone = is_gone or newest > (known and known[3] or 0) and newest >= (known and known[2] or 0)
      end
      is_gone = is_gone and not tail
      -- What it says again by this message is missing until that has acted.
      local says_it = seen > 0 and lost.known >= seen
      if is_missing then
        -- What was booked since, or entered again, is there. What others have said again is gone as well where there is nothing.
        is_news = is_news or not known or newest >= known[2] or seen > 0 and lost.heard >= seen or is_long and seen == 0
          or is_long and known[7] and not tail and not says_it
        settles = newest + retention
      end
      is_news = is_news or is_gone
      if is_news then settles = max(settles, now + reach + retention) end
      local hears = hears_of and is_long and not is_news
      if is_news or is_missing or hears then
        local noted = state.noted or known or { 0, 0, 0 }
        -- What is seen beside it in another log of the scope is news to its queue.
        hears = hears and (noted[4] or 0) <= hears_of
        local since, ends, of_logs, said = noted[4], noted[5], noted[6], hears and 1 or not is_news and noted[7] or nil
        if hears then
          settles, since, ends = max(settles, hears_of + lost.SETTLING), hears_of, max(ends or 0, now + reach + patience)
        elseif is_news and is_long then
          settles, since, ends = max(settles, now + lost.SETTLING), now, max(ends or 0, now + reach + patience)
        end
        -- Where no more is known of a log that counts still, what was known of an earlier loss may be lost as well.
        local is_unknown = is_news and not at_life and tail and tail + counts > now
        local of_log = is_long and (is_gone or is_unknown or is_missing and (not tail or is_older or still_has ~= false))
        if is_news and (is_long or not tail) then life.begin_anew(state, log.key) end
        if hears or of_log and (is_news or not says_it) then of_logs = 1 end
        state.noted = { is_news and now or noted[1], max(noted[2], settles), noted[3] or 0 }
        if since or of_logs then state.noted[4], state.noted[5], state.noted[6] = since or 0, ends or 0, of_logs or 0 end
        if (since or of_logs) and said then state.noted[7] = 1 end
      end
    end
  end
  for _, state in ipairs(states) do
    if state.noted then
      state.loss = state.noted
      save(state, now)
    end
  end
  lost.tell, lost.is_of_logs = 0, false
  for _, state in ipairs(states) do
    local loss = a[1] > 0 and lost.of(state)
    if loss and (loss[4] or 0) > lost.known then
      lost.tell, lost.is_of_logs = max(lost.tell, loss[4]), lost.is_of_logs or loss[6] == 1
    end
  end
  -- Others may not have said yet what they were granted, or the sender has not, who hears of it only now.
  lost.withholds = remembers and lost.tell > 0
  -- An entry of what counts for long is named for as long, but a message only for a minute: were none of the last minute there, whoever
  -- books after a loss would hide it.
  lost.must_remember = remembers and memory > 10 * SECOND and (a[at] == 0 or told + MAX_MEMORY / 2 <= now)
  for _, log in ipairs(logs) do
    local loss = log.counts > 10 * SECOND and lost.of(states[log.scope])
    lost.withholds = lost.withholds or loss and (loss[4] or 0) > 0 and now < min(loss[2], loss[4] + lost.SETTLING)
  end
  at = behind
  if again then
    lost.enter(states, at + 3, lost.again)
    at = at + 3 + lost.again * (width + 1)
  end
  for _, log in ipairs(logs) do log.settles = log.state.loss and log.state.loss[2] or 0 end
  return at
end

-- Whether a slot of this start was booked in a log before a loss that its queue has not heard of: what is there may be another's.
function lost.may_be(log, start)
  local loss = lost.of(log.state)
  return loss and (loss[4] or 0) > lost.heard and start < loss[2]
end

-- What an answer says where nobody starts yet for a loss, or no seat is given; and where it tells of one.
function lost.flag(states)
  local flag = lost.tell > 0 and 16 or 0
  if lost.is_closed then return flag + 4 end
  for _, state in ipairs(states) do
    if state.loss and state.loss[2] > now then return flag + 4 end
  end
  return flag
end

-- Adds what is told of a loss: when it was seen, and the last message that has survived it.
function lost.add_news(list)
  if lost.tell > 0 then list[#list + 1], list[#list + 2] = lost.tell, lost.is_of_logs and 0 or lost.survived end
  return list
end
