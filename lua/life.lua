-- What is kept beside a log that counts for long, or that callers wait for: its key, since when it is there, until when it must be. Joined
-- behind log.lua.
--
-- Redis may lose a log alone, where it evicts. Who was granted something of it misses that; but whoever remembers nothing would take it for
-- a new one.
local life = {}

-- Where what is known of a log stands, where anything is. It is kept for longer than it counts, and said to be there for less long than it
-- must be: so seldom is anything written of it.
function life.at(state, key)
  for i = 1, #state.lives, LIFE do
    if state.lives[i] == key and state.lives[i + 2] + lost.BEYOND > now then return i end
  end
end

-- Nothing is known of a log: it was lost, or what was lost was entered again. Says whether anything was, or was lately: a clock that has
-- leapt ahead may be set back.
function life.begin_anew(state, key)
  for i = 1, #state.lives, LIFE do
    if state.lives[i] == key then
      for _ = 1, LIFE do table.remove(state.lives, i) end
      return true
    end
  end
end

-- Keeps known that the logs of a scope are there, for whoever counts their entries for so long: those that count for long, and where
-- callers wait all. Of an empty one nothing any more. Said first is the oldest entry: none that counts and is older was ever in it.
function life.go_on(logs, state, waits, takes_out)
  for _, log in ipairs(logs) do
    local lives, goes_on = state.lives, log.counts > 10 * SECOND or waits and log.counts > 0
    local newest, known = (goes_on or takes_out) and nth_newest(log, 1), life.at(state, log.key)
    if log.state == state and newest == nil then
      state.is_news = life.begin_anew(state, log.key) or state.is_news
    elseif log.state == state and newest and goes_on then
      local lasts = newest + log.counts
      if lasts > now and not (known and lives[known + 2] + lost.BEYOND >= lasts) then
        local since = known and lives[known + 1] or stamp_of(call('LINDEX', log.key, '0'), log.key)
          or stamp_of(call('LINDEX', log.key, '1'), log.key) -- behind a mark
        life.begin_anew(state, log.key)
        lives[#lives + 1], lives[#lives + 2], lives[#lives + 3] = log.key, since, lasts
        state.is_news = true
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
