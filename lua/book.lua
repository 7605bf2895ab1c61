-- Books a slot for each caller of an ask that can start within the horizon, in their order. Takes out slots that nobody wants first.
--
-- Atomic, because a start is computed from the entries before it and must be entered before anybody else looks.
-- KEYS[1] replay   the last message of the sender's stream, and its answer
-- KEYS[2] state    of the whole upstream
-- KEYS[3..] states of the ask's scopes but the whole upstream, in the order of their logs
-- KEYS[..] logs    one list of start times for each log: those of the whole upstream first, those of one scope next to each other
-- KEYS[..] seats   for each limit on calls in flight, who holds its seats
-- ARGV[1] doubles of 8 bytes:
--         1 number    of this message in the sender's stream; 0: it is nobody's, and not remembered
--         2 previous  number of the last message that the sender knows to be remembered, or 0
--         3 known     the newest log time that the sender knows, or 0
--         4 latest    what log time is now at the latest, or 0
--         5 horizon   µs; 6 ahead: µs before which no start is of use, as the answer takes as long to arrive
--         7 flags     1: put off; 2: cold; 4: debts; 8: seats; 2048: heard of a loss; 4096: an outage; 8192: observes; 16 * (weight - 1)
--         8 scopes    count of the ask's scopes; 9 widest: 1: the first of them is the whole upstream
--        10 counted   for each scope: the period that it was counted in, or 0; then for each log: place of its scope, count of terms,
--           quota and span (µs) of each; behind a span below 0 of a bucket 1, how long a unit and how long all drain (ns), of a calendar 2,
--           guard (µs) and four boundaries (each from, to); then what must be there, as loss.lua says; where it tells cold calls, first and
--           last start, units by log, µs more for which they count by each term; where it tells debts, units by log; where it wants seats,
--           lease (µs), seats kept, those no call uses, seats of each limit; then count of slots to take out, of each: start, 1 where it
--           was to look, units by log; of each run: callers (of high priority less 2^32, of low more), longest wait or -1, units by log
-- ARGV[2] clock    in tests only
-- Returns, where everybody starts now and there is nothing else to say, (now - known) * 4096 + number % 4096; else integers of 8 bytes:
--         number, now, flags (1: all start at `next`; 2: remembered; 4: data was lost; 8: others name other terms; 16: told of a loss; 32:
--         slower; 64: corrected; 128: smaller), next: when the first that waits may go; where not all start then: within (µs), end of a
--         pause or 0, its cause, status, others that wait, for each scope: counted; where it wants seats, seats to keep, µs after which it
--         asks for more or 0; by flag 8 place of the log, quota and span of the strictest; by 16 what loss.lua tells; by 32 usage.lua; by
--         64 µs by which log time is ahead of the clock; by 128 when one may go that takes less than the first, and place of
--         their first run; then verdict (0 refused, 1 granted, 2 waits, 3 looks), start, callers
-- Errors: OUTDATED a later message of this stream was seen; DUPLICATE another process has its name; GARBAGE a key makes no sense
-- Cost: O(1) reads and one push where all start now, else O(callers)
local MAX_CLAIMS = 8

-- Read.
local horizon, ahead, insist, sender = a[5], a[6], a[7] % 2 == 1, KEYS[1]
local is_colder, has_debts = floor(a[7] / 2) % 2 == 1, floor(a[7] / 4) % 2 == 1
local states, next_key = read_states(scopes, has_widest)
local at, retention, last_log = 10 + scopes, 0, wants_seats and seat_keys.before() or #KEYS
for i = next_key, last_log do
  local scope, log = a[at], nil
  log, at = open_log(KEYS[i], states[scope], at + 1, true)
  log.scope, log.pauses, logs[#logs + 1] = scope, states[scope].pauses, log
  local state = states[scope]
  state.pace, state.interval = max(state.pace or 0, log.pace or 0), max(state.interval or 0, log.one_by_one or 0)
  retention = max(retention, log.retention)
end
if is_stale(upstream) then save(upstream, now) end
for _, state in ipairs(states) do
  if state ~= upstream and is_stale(state) then save(state, now) end
end
local back, last_back, runs, total = 0, now, {}, 0
do
  at = lost.note(states, at)
  local width, cold = #logs, at
  if is_colder then
    at = at + 2 + width
    for _, log in ipairs(logs) do log.cold_at, at = at, at + log.own end
  end
  local debts = at
  for _, log in ipairs(has_debts and logs or {}) do log.owes, at = a[at] > 0, at + 1 end
  if wants_seats then at = open_seats(at, last_log + 1) end
  back = a[at]
  local first_slot = at + 1
  at = first_slot + back * (width + 2)

  while a[at] do
    local priority = NORMAL + floor(a[at] / 4294967296)
    local run = { callers = a[at] % 4294967296, max_wait = a[at + 1] >= 0 and a[at + 1], charges = {}, priority = priority }
    for i = 1, width do run.charges[i] = a[at + 1 + i] end
    runs[#runs + 1], at, total = run, at + 2 + width, total + run.callers
  end

  -- Take out. Remembered first, as if nobody were granted anything: an entry that is no time ends this halfway.
  do
    if has_debts then last_back = settle_slots(logs, states, first_slot, back, debts)
    elseif back > 0 then
      lost.remember_first()
      for slot = first_slot, first_slot + (back - 1) * (width + 2), width + 2 do
        last_back = max(last_back, a[slot])
        for i, log in ipairs(logs) do hand_back(log, a[slot], lost.may_be(log, a[slot]) and 0 or a[slot + 1 + i]) end
        if a[slot + 1] == 1 then not_looked(states, a[slot]) end
      end
    end
  end

  -- A state that is written twice does no harm: cold calls are few.
  for i = 1, is_colder and width or 0 do
    if enter_cold(logs[i], a[cold], a[cold + 1], a[cold + 1 + i], logs[i].cold_at) then save(logs[i].state, now) end
  end
  keep_presumed(logs)
end

-- Who waits, by periods. An entry of the one before counts until this one ends.
for scope, state in ipairs(states) do
  state.waiting = { state.contenders, state.claims, state.reach }
  state.contenders = waiting_now(state.contenders, state.pace or 0, state.interval or 0)
  state.counted_at = counted_at(state.contenders, a[9 + scope])
end

-- Whoever has the highest priority is the first.
local priority = runs[1] and runs[1].priority or 3
local turns, place, had_claim, far = claims_of(states, sender, insist, priority)

-- Decide.
local soonest, slack = now + ahead, max(SLACK, ahead)
-- Who is near books as far ahead as who is far: else the far would always be before them.
local limit, limits, has_calendar = now + max(ahead + horizon, far), {}, false
-- Whoever has a slot by now does not hear of a refusal before it: while calls come slower after a pause let there be few.
limit = lost.withholds and soonest - 1 or soonest + floor((limit - soonest) / slower_after_pause(states))
limit, has_calendar = limit_of_calendars(logs, limit)
local granted, next, first, is_foremost, is_near, waits_for, short, is_short, again = 0, now, nil, false, false, {}, 0, false, 0
-- Of those behind the first that waits who take less and could start before it: the earliest start, their first run, if that start is near.
local next_smaller, largest, is_smaller_near = nil, nil, false
do
  local shares, seated = {}, math.huge
  if wants_seats then
    limit = min(limit, soonest + slack)
    seated, again = seats_for(total)
  end
  limits = limits_of(states, soonest, slack, limit, priority)
  for scope = 1, total > 1 and scopes or 0 do
    local higher = 0
    for of = 1, 3 do
      local weights = rivals_of(states[scope], of) - claimed_in(states[scope], sender, of)
      if weights > 0 then shares[#shares + 1] = share_of(scope, of, runs, weights, soonest, limits[of], higher <= 0) end
      higher = weights
    end
  end
  settle(turns)
  local before = place - 1
  -- Who is refused comes after those before it, too.
  local earliest_refused = soonest
  for t = 1, before do earliest_refused = max(earliest_refused, turns[t].start) end
  local refused = {}

  -- Callers that wait, and are not among the answers yet; how large the last was for whom too little was left.
  local passed, too_large, last = 0, math.huge, priority
  for r, run in ipairs(runs) do
    if run.priority ~= last then last, before = run.priority, turns_before(turns, run.priority) end
    local charges, deadline, rest = run.charges, run.max_wait and now + max(run.max_wait, ahead), run.callers
    if size_of(charges) >= too_large then passed, rest = passed + rest, 0 end
    while rest > 0 do
      if granted >= seated then
        is_short = true
        if run.max_wait and now + run.max_wait <= soonest then
          if passed > 0 then answer(2, first and next or now + again, passed) end
          refused[#refused + 1] = { after = #answers, charges = charges, callers = rest }
          answers[#answers + 1], answers[#answers + 2], answers[#answers + 3] = 0, 0, 0
          earliest_refused, passed = max(earliest_refused, now + again), 0
        else
          passed, short = passed + rest, short + rest
        end
        break
      end
      local start = earliest_of(soonest, charges)
      local turn = delayed(turns, before, start, charges)
      start = max(start, turn or start)
      local withheld = turn or is_spent(shares, run)
      local near = not withheld and waits_for_fewer(soonest, slack, start, charges)
      withheld = withheld or near or start > limits[run.priority]
      local hopeless = deadline and (start > deadline or (withheld and deadline <= soonest))
      if first and (withheld or hopeless) then
        if withheld then too_large = size_of(charges) end
        -- While nobody starts it is not known when.
        if withheld and start < (next_smaller or next) and limits[run.priority] >= soonest then
          next_smaller, largest, is_smaller_near = start, largest or r - 1, near
        end
        passed, rest = passed + rest, 0
      elseif hopeless then
        -- The rest of the run fares alike. Each is told its own time below.
        refused[#refused + 1] = { after = #answers, charges = charges, callers = rest }
        answers[#answers + 1], answers[#answers + 2], answers[#answers + 3] = 0, 0, 0
        rest = 0
      elseif withheld then
        for scope = 1, scopes do
          waits_for[scope] = scopes == 1 or turn or is_spent(shares, run, scope)
            or earliest_of(soonest, charges, scope) + slack >= start
        end
        first = { charges = charges, start = start_beside(turns, before, soonest, charges), priority = last, behind = {} }
        is_foremost, is_near = granted == 0, near
        for t = 1, before do first.behind[t] = turns[t].owner end
        table.insert(turns, before + 1, first)
        settle(turns)
        next, before, too_large, passed, rest = first.start, turns_before(turns, run.priority), size_of(charges), rest, 0
      else
        local looks = look_at_pauses(states, charges, start)
        local most = within_shares(shares, run, min(rest, seated - granted))
        local count = looks and 1 or together(turns, before, run, most, soonest, start)
        if passed > 0 then answer(2, next, passed) end
        for _, log in ipairs(logs) do log.ahead = min(2 * log.ahead, total, PIECE) end
        add(start, charges, count)
        answer(looks and 3 or 1, start, count)
        for _, share in ipairs(shares) do share.spent = share.spent + count * charges[share.measure] end
        granted, passed, rest, before = granted + count, 0, rest - count, turns_before(turns, run.priority)
      end
    end
    -- What is left within the horizon is left for somebody else.
    if first and first.start <= limits[first.priority] then break end
  end

  if #refused > 0 then tell_times(refused, earliest_refused) end
end

local told, most = first and first.priority or priority, 0
for _, state in ipairs(states) do most = max(most, rivals_of(state, told)) end

-- Write.
local all, long = granted == total and total > 0 and #answers == 3 and answers[1] == 1 and answers[2] == now, {}
if a[1] > 0 and runs[1] and a[7] < 8192 then named_terms.name(logs, runs, period_of(retention, a[5]), not all) end
for _, log in ipairs(logs) do
  if log.count > 0 and log.terms[1] then
    for _, term in ipairs(log.buckets) do keep_level(log, term.bucket, level_of(log, term)) end
    log.length = push_runs(log.key, log.added, log.upto, log.runs)
    local keep = expire(log.key, log.added[log.runs], ceil(log.retention / 1000), log.count)
    log.kept = max(log.retention, ticks and keep * 1000 or 0)
  elseif log.widened and nth_newest(log, 1) then
    -- A span that is longer meanwhile lets entries count for longer than they were entered for.
    expire(log.key, nth_newest(log, 1), ceil(log.retention / 1000), 0)
  end
  if log.length and log.length > TRIM_QUOTAS * log.quota + TRIM_SLACK then long[#long + 1] = log end
end

local changed = granted > 0 or back > 0 or is_colder or has_debts or lost.again > 0 or lost.must_remember
local counts = {}
do
  local promised = min(next, now + MAX_SILENCE) + horizon
  -- The first caller that waits has its turn among theirs.
  local claiming = insist and is_foremost and #turns - 1 < MAX_CLAIMS
  for scope, state in ipairs(states) do
    counts[scope] = 0
    local differs = false
    if a[1] > 0 then
      -- Who was just served is probably back before long: what is left then is not all for those who are quicker.
      local all = state.contenders
      if not all then
        local period = period_of(state.pace or 0, a[5])
        all = { now + period, 0, period, 0, 0, 0, 0, 0, 0 }
      end
      local counted = state.counted_at
      local waits = waits_for[scope] or (counted and granted > 0)
      counts[scope] = waits and all[1] + priority - NORMAL or 0
      if counts[scope] ~= (counted and a[9 + scope] or 0) then
        differs = true
        if counted then all[counted] = max(all[counted] - weight, 0) end
        if waits then all[3 + priority] = all[3 + priority] + weight end
        state.contenders = max(unpack(all, 4, 9)) > 0 and all
      end
      if claiming or had_claim then
        local claim
        if claiming then
          claim = { sender, first.start, promised, {}, first.priority, weight }
          for i, log in ipairs(logs) do
            if log.scope == scope then claim[4][log.key] = first.charges[i] end
          end
        end
        differs = enter_claim(state, sender, claim, first and first.behind) or differs
      end
      if ahead > 0 and far <= ahead + horizon and (granted > 0 or first) then
        state.reach, differs = { ahead + horizon, promised + ahead }, true
      end
    end
    changed = changed or differs
    if not (differs or state.looked) then state.contenders, state.claims, state.reach = unpack(state.waiting) end
    life.go_on(logs, state, state.contenders and lapse_of.contenders(state.contenders) > now, back > 0)
    if differs or state.looked or state.is_news then save(state, now) end
  end
end
if upstream.looked and not has_widest then save(upstream, now) end

local stop, cause, status = 0, -1, 0
for _, state in ipairs(states) do stop, cause, status = paused_by(state.pauses, stop, cause, status) end
local keep, has_news, body = 0, false, nil
if wants_seats then keep, has_news = take_seats(granted, short, again) end
changed = changed or has_news
if short > 0 and not first then next = now + again end
do
  local named, counted = named_terms.strictest(logs), 0
  local slower = not all and stop == 0 and slower_of(states)
  local flags = (changed and 2 or 0) + lost.flag(states) + (named[1] and 8 or 0) + (slower and 32 or 0)
  local corrected, within = has_calendar and math.abs(correction) >= SECOND, max(limits[told] - soonest, 0)
  if next_smaller and is_smaller_near or not next_smaller and is_near then within = slack end
  body = { flags + (corrected and 64 or 0) + (next_smaller and 128 or 0), next, within, stop, max(cause, 0), status, most }
  for scope = 1, scopes do body[7 + scope], counted = counts[scope], counted + counts[scope] end
  if wants_seats then body[8 + scopes], body[9 + scopes] = keep, is_short and again or 0 end
  for _, part in ipairs(lost.add_news(named)) do body[#body + 1] = part end
  for _, part in ipairs(slower or {}) do body[#body + 1] = part end
  body[#body + 1] = corrected and correction or nil
  if next_smaller then body[#body + 1], body[#body + 2] = next_smaller, largest end
  for i = 1, #answers do body[#body + 1] = answers[i] end
  if all and stop + most + counted == 0 and not (wants_seats or named[1] or corrected) then body = { 3, now } end
end
body = struct.pack('<' .. string.rep('i8', #body), unpack(body))
local said
if changed then said = remember(max(retention, lease) + max(limit - now, last_back - now), body) else said = reply(body) end
-- Last, since this fails where an old entry is no time, and what is booked must be remembered by then.
life.trim(long)
lost.mark(logs)
return said
