-- Books a slot for each caller of an ask that can start within the horizon, in their order.
--
-- Atomic, because a start is computed from the entries before it and must be entered before anybody else looks.
--
-- KEYS[1] seen     the sender's last message and its answer
-- KEYS[2] told     by the upstream, of this scope
-- KEYS[3] told_all of the whole upstream; the same where there is no scope
-- KEYS[4] claim    callers of large cost that nobody may delay, first come first
-- KEYS[5] asking   processes with callers that wait, by when the entry lapses
-- KEYS[6] reach    how far ahead the process books whose answers take longest
-- KEYS[7] clock    by how much log time differs from the server's clock
-- KEYS[8..] logs   one list of start times for each log
-- ARGV[1] now      stamp, or empty for the server's clock
-- ARGV[2] number   of this message in the sender's stream
-- ARGV[3] previous number of the last message that the sender knows to be remembered, or 0
-- ARGV[4] sender
-- ARGV[5] horizon  µs
-- ARGV[6] insist   1: the first caller was put off before
-- ARGV[7] ahead    µs: no start before that is of use, as the answer takes as long to arrive
-- ARGV[8] known    the newest log time that the sender was told, or empty
-- ARGV[9] latest   what log time is now at the latest, or empty: the clock has leapt ahead of what the sender knows of it
-- ARGV[10] back    count of slots to hand back, then for each: start (stamp), units in each log; then for each log: count of
--           terms, then quota and span (µs) of each; then for each run: callers, longest wait (µs, or empty), cost in each log
-- Returns {now, number, next, held, cause, contenders, (verdict, start, callers)...}: stamp; of this message; µs from now until
--         the first caller that waits may start; µs from now until a hold ends, and its cause; other processes that wait; 1 granted,
--         0 refused or 2 waits, µs from now, count
-- Errors: OUTDATED a later message of this sender has been seen; DUPLICATE two have its name; GARBAGE an entry is no time
-- Cost: O(callers) when slots are scarce, O(1) reads and one push when they are not
local seen_key, told_key, told_all_key, claim_key, asking_key, reach_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local clock_key, now, known, latest = KEYS[7], ARGV[1], tonumber(ARGV[8]), tonumber(ARGV[9])
local number, previous, sender, horizon = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local insist, ahead, back = ARGV[6] == '1', tonumber(ARGV[7]), tonumber(ARGV[10])
local keys, args = KEYS, ARGV

local expires
now, expires = log_time(now, clock_key, known, latest)

local MAX_MEMORY, MAX_SILENCE, TRIM_SLACK, PIECE, MAX_CLAIMS = 60000000, 30000000, 64, 1000, 8

-- Read.
local state = redis.call('MGET', seen_key, told_key, told_all_key, claim_key, reach_key)
local others = redis.call('ZCOUNT', asking_key, '(' .. text(now), '+inf')
-- MGET is silent about a key of another type, which might hide a hold; GET is not.
if present ~= 0 then present = redis.call('EXISTS', told_key, told_all_key, claim_key, asking_key, reach_key) end
for i = 2, 5 do
  if state[i] then present = present - 1 end
end
if present > (others > 0 and 1 or 0) then redis.call('GET', told_key) redis.call('GET', told_all_key) end
local heeded = heed(state[2], state[3], told_key, told_all_key, now)
local holds = heeded.holds

local function reply(next, answers)
  local held, cause = 0, 0
  for _, hold in ipairs(holds) do
    if hold.stop > now then held, cause = math.max(held, hold.stop - now), math.max(cause, hold.cause) end
  end
  local out = { now, number, next - now, held, cause, others }
  for i = 1, #answers, 3 do
    out[i + 6], out[i + 7], out[i + 8] = answers[i], answers[i + 1] - now, answers[i + 2]
  end
  return out
end

local was_asking, own_lapse = false, 0
if others > 0 then
  own_lapse = tonumber(redis.call('ZSCORE', asking_key, sender) or 0)
  was_asking = own_lapse > now
  if was_asking then others = others - 1 end
end

local seen, outdated, remembered, last = recall(state[1], now, number)
local error_reply = outdated or foreign_name(previous, last)
if error_reply then return error_reply end
if seen then
  local answers = {}
  for i = 4, #seen do answers[i - 3] = seen[i] end
  return reply(seen[3], answers)
end

-- Callers of other processes that claim, and where the first of this ask is among them.
local claims, had_claim, place, record = {}, false, nil, {}
if state[4] then record = cmsgpack.unpack(state[4]) end
for _, claim in ipairs(record) do -- sender, start, lapse, units by log
  if claim[3] > now and claim[1] ~= sender then
    claims[#claims + 1] = claim
  elseif claim[3] > now then
    had_claim, place = true, insist and #claims + 1 or nil
  end
end
place = place or #claims + 1

local far = state[5] and cmsgpack.unpack(state[5]) -- reach, lapse
if far and far[2] <= now then far = nil end

-- Hand back. Remembered first, since an entry that is no time ends this halfway.
local width = #keys - 6
local logs, retention, last_back, at = {}, 0, now, 11 + back * width
if back > 0 then
  remember(seen_key, number, now, math.max(now + MAX_MEMORY, remembered), expires, { now })
  for slot = 11, at - 1, width do
    last_back = math.max(last_back, tonumber(args[slot]))
    for i = 8, #keys do take_out(keys[i], args[slot], tonumber(args[slot + i - 7]), expires) end
  end
end

-- Read the logs.
for i = 8, #keys do
  local terms, span, quota
  terms, span, quota, at = read_terms(args, at + 1, tonumber(args[at]), heeded.widened)
  local log = open_log(keys[i], terms, 1, heeded)
  log.retention, log.quota, logs[i - 7] = span, quota, log
  if span > retention then retention = span end
end

local runs, callers, units = {}, 0, 0
while args[at] do
  local run = { callers = tonumber(args[at]), max_wait = tonumber(args[at + 1]), costs = {} }
  for i = 1, #logs do run.costs[i] = tonumber(args[at + 1 + i]) end
  runs[#runs + 1], at = run, at + 2 + #logs
  callers, units = callers + run.callers, units + run.callers * run.costs[1]
end

-- Decide.
local soonest = now + ahead
-- Who is near books as far ahead as who is far: else the far would always be before them.
local reach = math.max(ahead + horizon, far and far[1] or 0)
local limit = now + reach

local function earliest_of_all(start, costs)
  for i, log in ipairs(logs) do
    if costs[i] > 0 then start = earliest(log, start, costs[i]) end
  end
  return start
end

local function add(start, costs)
  for i, log in ipairs(logs) do
    for n = 1, costs[i] do log.added[log.count + n] = start end
    log.count = log.count + costs[i]
  end
end

-- Whether so many units of each log could ever start at once.
local function is_possible(costs)
  for i, log in ipairs(logs) do
    for _, term in ipairs(log.terms) do
      if costs[i] > term.quota then return false end
    end
  end
  return true
end

-- Callers of these costs that the rate of the limits lets start within a time, one after another.
local function at_rate(costs, time)
  local most = math.huge
  for i, log in ipairs(logs) do
    for _, term in ipairs(log.terms) do
      most = math.min(most, math.floor(math.floor(term.quota * time / term.base) / costs[i]))
    end
  end
  return most
end

-- Other processes that could start by the limit: who waits for longer has no use for what is free until then, and nobody delays
-- who claims. An entry lapses a horizon after its slot.
local rivals = 0
if others > 0 then
  rivals = redis.call('ZCOUNT', asking_key, '(' .. text(now), text(limit + horizon))
  if was_asking and own_lapse <= limit + horizon then rivals = rivals - 1 end
  for _, claim in ipairs(claims) do
    if claim[3] <= limit + horizon then rivals = rivals - 1 end
  end
end

-- An equal share of what is free, in units of the first log: of what could start together by the limit, found by bisection, where
-- each takes as much of the other logs as one of the first caller's, or at the rate of the limits until then.
local share = math.huge
if rivals > 0 and runs[1] then
  local one, costs = runs[1].costs, {}
  local wanted = units * (rivals + 1)
  local free, over = 0, wanted + 1
  while free + 1 < over do
    local middle = free + math.floor((over - free) / 2)
    for i, cost in ipairs(one) do costs[i] = math.ceil(cost * middle / one[1]) end
    if is_possible(costs) and earliest_of_all(soonest, costs) <= limit then free = middle else over = middle end
  end
  if free >= one[1] then
    local rated = (at_rate(one, limit - earliest_of_all(soonest, one)) + 1) * one[1]
    free = math.max(free, math.min(rated, wanted))
  end
  share = math.ceil(free / (rivals + 1))
end

-- Undoes what is added meanwhile.
local function tentatively(attempt)
  local kept = {}
  for i, log in ipairs(logs) do kept[i] = log.count end
  attempt()
  for i, log in ipairs(logs) do log.count = kept[i] end
end

-- Callers that wait, in their order: who claims, and the first of this ask. Others may go before them where none starts later for it.
local turns, before, first = {}, place - 1, nil
for t, claim in ipairs(claims) do
  local costs = {}
  for i, log in ipairs(logs) do costs[i] = claim[4][log.key] or 0 end
  turns[t] = { costs = costs, start = math.max(claim[2], now) }
end

-- Lets each turn start after those before it.
local function settle()
  tentatively(function()
    for _, turn in ipairs(turns) do
      turn.start = earliest_of_all(turn.start, turn.costs)
      add(turn.start, turn.costs)
    end
  end)
end
if turns[1] then settle() end

-- The latest of the turns before it that a call of these costs would delay.
local function delayed(start, costs)
  local latest
  if before == 0 then return nil end
  tentatively(function()
    add(start, costs)
    for t = 1, before do
      local delayed_start = earliest_of_all(turns[t].start, turns[t].costs)
      if delayed_start > turns[t].start then latest = turns[t].start end
      add(delayed_start, turns[t].costs)
    end
  end)
  return latest
end

-- Who is refused comes after those before it, too.
local floor = before > 0 and math.max(soonest, turns[before].start) or soonest
local answers, granted, spent, next, is_foremost, refused = {}, 0, 0, now, false, {}

local function answer(verdict, start, count)
  local last = #answers
  if last > 0 and answers[last - 2] == verdict and answers[last - 1] == start then
    answers[last] = answers[last] + count
  else
    answers[last + 1], answers[last + 2], answers[last + 3] = verdict, start, count
  end
end

-- The common case: there is room for one and all, now.
local function room_for_all()
  if ahead > 0 or #runs ~= 1 or #holds > 0 or share < units or claims[1] then return false end
  local costs = {}
  for i, cost in ipairs(runs[1].costs) do costs[i] = cost * callers end
  return is_possible(costs) and earliest_of_all(now, costs) == now
end

if room_for_all() then
  for i, log in ipairs(logs) do log.batch, log.count = now, callers * runs[1].costs[i] end
  answer(1, now, callers)
  granted = callers
else
  for _, log in ipairs(logs) do log.ahead = math.min(units, PIECE) end
  -- Callers that wait, and are not among the answers yet; what the last for whom too little was left wanted of the first log.
  local passed, too_large = 0, math.huge
  for _, run in ipairs(runs) do
    local deadline, rest = run.max_wait and now + math.max(run.max_wait, ahead), run.callers
    if run.costs[1] >= too_large then passed, rest = passed + rest, 0 end
    while rest > 0 do
      local start = earliest_of_all(soonest, run.costs)
      local turn = delayed(start, run.costs)
      start = math.max(start, turn or start)
      local withheld = turn or start > limit or spent >= share
      local hopeless = deadline and (start > deadline or (withheld and deadline <= soonest))
      if first and (withheld or hopeless) then
        if withheld then too_large = run.costs[1] end
        passed, rest = passed + rest, 0
      elseif hopeless then
        -- The rest of the run fares alike. Each is told its own time below.
        refused[#refused + 1] = { after = #answers, costs = run.costs, callers = rest }
        answers[#answers + 1], answers[#answers + 2], answers[#answers + 3] = 0, 0, 0
        rest = 0
      elseif withheld then
        first, is_foremost = { costs = run.costs, start = start }, granted == 0
        table.insert(turns, place, first)
        settle()
        next, before, too_large, passed, rest = first.start, #turns, run.costs[1], rest, 0
      else
        if passed > 0 then answer(2, next, passed) end
        add(start, run.costs)
        answer(1, start, 1)
        granted, spent, passed, rest = granted + 1, spent + run.costs[1], 0, rest - 1
        if not first then before, place = #turns, #turns + 1 end
      end
    end
    -- What is left within the horizon is left for somebody else.
    if first and first.start <= limit then break end
  end
end

-- A refused caller's own time: when it could go after all those before it had gone.
if #refused > 0 then
  local told, r = answers, 1
  answers = {}
  tentatively(function()
    for i = 1, #told, 3 do
      local run = refused[r]
      if run and run.after == i - 1 then
        for _ = 1, run.callers do
          local start = earliest_of_all(floor, run.costs)
          add(start, run.costs)
          answer(0, start, 1)
        end
        r = r + 1
      else
        answer(told[i], told[i + 1], told[i + 2])
      end
    end
  end)
end

-- Write.
local long
for _, log in ipairs(logs) do
  if log.count > 0 then
    local before = nth_newest({ key = log.key, read = log.read, added = {}, count = 0, ahead = 1 }, 1)
    local keep = math.ceil(log.retention / 1000) + 1
    if expires then keep = math.max(keep, kept_ms(log.key, before)) end
    local stamps, length = {}, 0
    for from = 1, log.count, PIECE do
      local size = math.min(PIECE, log.count - from + 1)
      local batch = log.batch and text(log.batch)
      for i = 1, size do stamps[i] = batch or text(log.added[from + i - 1]) end
      length = redis.call('RPUSH', log.key, unpack(stamps, 1, size))
    end
    local newest = log.batch or log.added[log.count]
    if length > log.quota + TRIM_SLACK then
      long = long or {}
      -- As of the newest entry of before: where the clock has leapt, that is when the others are from.
      local as_of = math.min(now, before or now)
      long[#long + 1], log.outdated = log, as_of - math.max(log.retention, expires and keep * 1000 or 0)
    end
    if expires then expire_log(log.key, newest, keep) end
  end
end

local promised = math.min(next, now + MAX_SILENCE) + horizon
-- Who was just served is probably back before long: what is left then is not all for those who are quicker.
if first or (was_asking and granted > 0) then
  redis.call('ZREMRANGEBYSCORE', asking_key, '-inf', text(now))
  redis.call('ZADD', asking_key, text(promised), sender)
  local keep = math.ceil((promised - now) / 1000)
  if expires and redis.call('PTTL', asking_key) < keep then redis.call('PEXPIRE', asking_key, text(keep)) end
elseif was_asking then
  redis.call('ZREM', asking_key, sender)
end
local claiming = first and insist and is_foremost and #claims < MAX_CLAIMS
if claiming then
  local claimed = {}
  for i, log in ipairs(logs) do claimed[log.key] = first.costs[i] end
  table.insert(claims, place, { sender, next, promised, claimed })
end
if claims[1] and (claiming or had_claim) then
  local lapse = now
  for _, claim in ipairs(claims) do lapse = math.max(lapse, claim[3]) end
  redis.call('SET', claim_key, cmsgpack.pack(claims))
  if expires then redis.call('PEXPIRE', claim_key, text(math.ceil((lapse - now) / 1000))) end
elseif had_claim then
  redis.call('DEL', claim_key)
end
if ahead > 0 and ahead + horizon == reach and (granted > 0 or first) then
  redis.call('SET', reach_key, cmsgpack.pack({ reach, promised + ahead }))
  if expires then redis.call('PEXPIRE', reach_key, text(math.ceil((promised + ahead - now) / 1000))) end
end
if granted > 0 or first or was_asking or back > 0 then
  local answered_with = { next }
  for i = 1, #answers do answered_with[i + 1] = answers[i] end
  -- Not for less long than the message before: a late copy of that must not act.
  local stamp = math.max(now + math.min(retention + math.max(reach, last_back - now), MAX_MEMORY), remembered)
  remember(seen_key, number, now, stamp, expires, answered_with)
end
for i = 1, long and #long or 0 do
  -- By time only: a log cut to a count would forget a call that counts again once a later slot is handed back. Last, since this
  -- fails where an old entry is no time, and what is booked must be remembered by then.
  redis.call('LTRIM', long[i].key, -newer_than(long[i].key, long[i].outdated), -1)
end
return reply(next, answers)
