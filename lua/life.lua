-- What is kept beside a log that counts for long: its key, since when it is there, until when it must be. Joined behind log.lua.
--
-- Redis may lose a log alone, where it evicts. Who was granted something of it misses that; but whoever remembers nothing would take it for
-- a new one.
local life = {}

-- By how much less long it is said to be there than it must: so seldom is anything written of it.
life.LAG = 5 * SECOND

-- Where what is known of a log stands, where anything is.
function life.at(state, key)
  for i = 1, #state.lives, LIFE do
    if state.lives[i] == key and state.lives[i + 2] > now then return i end
  end
end

-- Nothing is known of a log: it was lost, or what was lost was entered again.
function life.begin_anew(state, key)
  for i = 1, #state.lives, LIFE do
    if state.lives[i] == key then
      for _ = 1, LIFE do table.remove(state.lives, i) end
      return
    end
  end
end

-- Keeps known that logs are there, for whoever counts their entries for so long: of an empty one nothing any more. Said first is the oldest
-- entry: none that counts and is older was ever in it.
function life.go_on(logs, takes_out)
  for _, log in ipairs(logs) do
    local is_long, lives = log.counts > 10 * SECOND, log.state.lives
    local newest, known = (is_long or takes_out) and nth_newest(log, 1), life.at(log.state, log.key)
    if newest == nil and known then
      life.begin_anew(log.state, log.key)
      log.state.is_news = true
    elseif newest and is_long then
      local lasts = newest + log.counts
      if lasts > now and not (known and lives[known + 2] >= lasts - life.LAG) then
        local since = known and lives[known + 1] or stamp_of(call('LINDEX', log.key, '0'), log.key)
          or stamp_of(call('LINDEX', log.key, '1'), log.key) -- behind a mark
        life.begin_anew(log.state, log.key)
        lives[#lives + 1], lives[#lives + 2], lives[#lives + 3] = log.key, since, lasts
        log.state.is_news = true
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
