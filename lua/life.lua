-- What is kept beside a log that counts for long, or that callers wait for: its key, since when it is there, for how long its entries count
-- for whoever is most patient, and until when any does. Joined behind log.lua.
--
-- Redis may lose a log alone, where it evicts. Who was granted something of it misses that; but whoever remembers nothing would take it for
-- a new one.
local life = {}

-- Where what is known of a log stands, where anything is. A log is kept for longer than it counts: it must be there for 5 s more. So this
-- need be written anew only when its newest entry counts for 5 s longer than it says.
function life.at(state, key)
  for i = 1, #state.lives, LIFE do
    if state.lives[i] == key and state.lives[i + 3] + lost.BEYOND > now then return i end
  end
end

-- Nothing is known of a log: it was lost, or what was lost was entered again. Says whether anything was there.
function life.begin_anew(state, key)
  for i = 1, #state.lives, LIFE do
    if state.lives[i] == key then
      for _ = 1, LIFE do table.remove(state.lives, i) end
      return true
    end
  end
end

-- Keeps known that a log is there. The oldest entry of then goes with it, or a time before it that was told: none that counts and is older
-- was ever in it.
function life.keep(log, state, newest, told)
  local known = life.at(state, log.key)
  local lives, counts = state.lives, max(log.counts, known and state.lives[known + 2] or 0)
  local ends = newest + counts
  local is_said = known and lives[known + 2] == counts and lives[known + 3] + lost.BEYOND >= ends and lives[known + 3] <= ends
    and lives[known + 1] <= told
  if ends <= now and known and lives[known + 3] > ends then
    -- What counted was taken out: nothing need be there any more.
    state.is_news = life.begin_anew(state, log.key)
  end
  if ends <= now or is_said then return end
  local since = known and lives[known + 1] or stamp_of(call('LINDEX', log.key, '0'), log.key)
    or stamp_of(call('LINDEX', log.key, '1'), log.key) -- behind a mark
  life.begin_anew(state, log.key)
  local at = #lives
  lives[at + 1], lives[at + 2], lives[at + 3], lives[at + 4] = log.key, min(since, told), counts, ends
  state.is_news = true
  expire(log.key, newest, ceil(counts / 1000), 0)
end

-- The same of the logs of a scope that count for long, and where callers wait of all. Where slots were taken out, an empty one need not be
-- there any more, and another not for so long.
function life.go_on(logs, state, waits, takes_out)
  for _, log in ipairs(logs) do
    local goes_on = log.counts > 10 * SECOND or waits and log.counts > 0
    if log.state == state and (goes_on or takes_out) then
      local newest = nth_newest(log, 1)
      if newest and (goes_on or life.at(state, log.key)) then
        -- Whoever tells a debt remembers it as of the log time that it knew, however often the message came.
        life.keep(log, state, newest, log.owes and a[3] ~= 0 and a[3] or 9e15)
      elseif not newest then
        state.is_news = life.begin_anew(state, log.key) or state.is_news
      end
    end
  end
end

-- Trims logs by time only: one that is cut to a count would forget a call that counts again once a later slot is handed back. As of an
-- entry with a whole quota behind it: where the clock has leapt ahead, so many may have been granted by that before it is taken back, and
-- what came before them counts again then.
function life.trim(logs)
  for _, log in ipairs(logs) do
    local as_of = min(now, stamp_of(call('LINDEX', log.key, format('%d', -log.quota - 1)), log.key))
    call('LTRIM', log.key, format('%d', -newer_than(log.key, as_of - log.kept)), '-1')
  end
end
