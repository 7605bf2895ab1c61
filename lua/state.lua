-- How long keys live, and what is kept of a scope beside its logs: who waits, and what the upstream imposed. Joined in front of every
-- script but for its head. Of a state:
--   claims      for each: whose, start, lapse, units by log, priority (1 high, 2 normal, 3 low), weight
--   reach       how far ahead the process books whose answers take longest, until when that counts; or false
--   pause       no start before; µs after it in which calls come slower; refusals in a row; cause; when the row is forgotten; when it
--               began; status of the first response; until when the upstream told to wait; µs for which it holds again after a call
--               has looked whether it still does; start of that call since the last refusal, or 0; overloads in a row, which are not
--               among the refusals; or false
--   cold        for each step of cold calls: log, span, start of the first and of the last, units, when they count no more
--   outside     for each term that others use: log, span; of the newest response the start of its call, units left, units that others had
--               used, the most of them since they are known of, since when they are; when the upstream resets; and whether units come
--               back one by one (1) or all then (0). Remembered for a span after the reset
--   correction  by how much log time differs from the server's clock; of the whole upstream only
--   rate        what refusals say that the upstream allows, as rate.lua writes it; or false
--   slow        millionths of the quotas that are left by hand, until when, since when; or false
--   releases    when it was released by hand, or 0; start of the last call that looked at a pause and was served, or 0; then of a whole
--               upstream, for each release lately: key of the scope's state, or '' for all, and when; or false
--   levels      for each bucket of a log, as bucket.lua writes it: how full it is
--   boundaries  for each boundary of a calendar window that was named lately, as boundaries.lua writes it
--   loss        when data was seen to be lost last, or forgotten by hand; before when nobody starts for that; the newest entry that was
--               forgotten by hand, or 0; or false. Where some counts for longer than 10 s, also when that was seen last, until when any
--               of it counts, 1 where logs alone were lost, and 1 where somebody has said again what it was granted
--   named       for each list of terms that a process names of a log beside others, as named_terms.lua writes it; false where there is none
--   contenders  when their period ends, when the one before ended, how long a period is; weights of those who were counted in it, of high,
--               normal and low priority; the same of those of the one before who have not come back; as doubles; false where nobody waits
--   lives       for each log that counts for over 10 s, or that callers have waited for lately, as life.lua writes it; false where there is
--               none

local max, min, floor, ceil = math.max, math.min, math.floor, math.ceil

-- Calls resume at this fraction of the limits' rate after a pause; no start is put further away than FAR. For so many µs a release by
-- hand voids what was told before; a call that looked, and was served, does; and a release is told to whoever looks.
local RESUMED, FAR, MARK_MEMORY, SERVED_MEMORY, RECENT = 10, 1e15, 2764800000000, 3600000000, 5000000
-- Factors of a rate are millionths; it rises in so many steps. Parts of what is told of a term that others use, of a level, of a boundary,
-- and of a life.
local FULL, RISE, TOLD, LEVEL, BOUNDARY, LIFE = 1000000, 1000, 9, 9, 5, 4

-- The end, in ms, of the second of the server's clock in which a stamp lies: keys expire by whole seconds, so that mostly there is
-- nothing to change.
local correction = 0
local function end_of_second(stamp) return (floor((stamp - correction) / SECOND) + 1) * 1000 end

-- Keeps a string until then, in ms of the server's clock: not for so long, which the server would count from a moment later.
local function keep_until(key, value, at)
  call('SET', key, value, ticks and 'PXAT' or 'PX', format('%d', ticks and at or LONGEST))
end

-- Fails, since a log with an entry that is no time would look shorter than it is, and a state that is none would hide a pause.
local function garbage(key) error(redis.error_reply('GARBAGE ' .. key)) end

-- What is kept beside logs, of four parts each.
local function read_lives(packed)
  local lives, at = {}, 1
  while at <= #packed do
    local n = #lives
    lives[n + 2], lives[n + 3], lives[n + 4], lives[n + 1], at = struct.unpack(LASTING, packed, at)
  end
  return lives
end

local function packed_lives(lives)
  local packed = {}
  for i = 1, #lives, LIFE do packed[#packed + 1] = struct.pack(LASTING, lives[i + 1], lives[i + 2], lives[i + 3], #lives[i], lives[i]) end
  return #packed > 0 and table.concat(packed)
end

local function read_state(packed, key)
  if not packed then
    return {
      contenders = false, claims = {}, reach = false, pause = false, cold = {}, outside = {}, correction = 0,
      rate = false, slow = false, releases = false, levels = {}, boundaries = {}, loss = false, named = {}, lives = {}, key = key,
    }
  end
  local is_read, parts = pcall(cmsgpack.unpack, packed)
  if not is_read or type(parts) ~= 'table' or #parts ~= 15 or type(parts[6]) ~= 'number' then garbage(key) end
  local claims, reach, pause, cold, outside, _, rate, slow, releases, levels, boundaries, loss, named, waiting, lives = unpack(parts)
  if waiting and (type(waiting) ~= 'string' or #waiting ~= 72) then garbage(key) end
  return {
    contenders = waiting and { struct.unpack(WAITING, waiting) }, claims = claims, reach = reach, pause = pause, cold = cold,
    outside = outside, correction = parts[6], rate = rate, slow = slow, releases = releases, levels = levels,
    boundaries = boundaries, loss = loss, named = named or {}, lives = lives and read_lives(lives) or {}, key = key,
  }
end

local lapse_of = {}

-- When nothing of a rate matters any more: it stays, and then rises for three quarters of the time again.
function lapse_of.rate(rate) return rate[3] + rate[4] + floor(rate[4] / 4) * 3 end

-- When nobody is known to wait any more.
function lapse_of.contenders(all) return all[1] + (max(unpack(all, 4, 6)) > 0 and all[3] or 0) end

-- When a bucket is empty whatever was in it before.
function lapse_of.level(levels, i) return levels[i + 3] + ceil((max(levels[i + 4], levels[i + 5]) + levels[i + 2]) / 1000) end

-- When a loss of data matters no more: no sender says then of what was before it that the store must remember it.
function lapse_of.loss(loss)
  -- Who had forgotten nothing may remember it for as long as the longest window. Of one that is longer than this loss[5] tells.
  local mark = (loss[3] or 0) > 0 and loss[3] + MARK_MEMORY or 0
  return max(loss[1] + MAX_MEMORY + 1000 * LEAP, loss[2], mark, loss[5] or 0)
end

-- What of the releases of a scope still matters.
local function releases_at(releases, stamp)
  if not releases then return false end
  local by_hand, served = releases[1], releases[2]
  local kept = { by_hand + MARK_MEMORY > stamp and by_hand or 0, served + SERVED_MEMORY > stamp and served or 0 }
  for i = 3, #releases, 2 do
    if releases[i + 1] + RECENT > stamp then kept[#kept + 1], kept[#kept + 2] = releases[i], releases[i + 1] end
  end
  return (#kept > 2 or kept[1] + kept[2] > 0) and kept
end

-- Writes what is left of a state, until none of it matters any more: what lapsed but now will matter again where the clock has leapt ahead
-- and is set back.
local function save(state, now)
  local claims, outside, levels, named = {}, {}, {}, {}
  local lapse, since, is_empty = now, now - 1000 * LEAP, state.correction == 0
  local function kept(stamp)
    if stamp <= since then return false end
    lapse, is_empty = max(lapse, stamp), false
    return true
  end
  for _, claim in ipairs(state.claims) do
    if kept(claim[3]) then claims[#claims + 1] = claim end
  end
  -- Of lists whose parts each say by their last when they lapse.
  local function kept_of(list, width)
    local left = {}
    for i = 1, #list, width do
      for part = i, kept(list[i + width - 1]) and i + width - 1 or 0 do left[#left + 1] = list[part] end
    end
    return left
  end
  local cold, boundaries, lives = kept_of(state.cold, 6), kept_of(state.boundaries, BOUNDARY), kept_of(state.lives, LIFE)
  for i = 1, #state.outside, TOLD do
    if kept(state.outside[i + 7] + state.outside[i + 1]) then
      for part = i, i + TOLD - 1 do outside[#outside + 1] = state.outside[part] end
    end
  end
  for i = 1, #state.levels, LEVEL do
    if kept(lapse_of.level(state.levels, i)) then
      for part = i, i + LEVEL - 1 do levels[#levels + 1] = state.levels[part] end
    end
  end
  for _, list in ipairs(state.named) do
    if kept(list[2]) then named[#named + 1] = list end
  end
  local contenders = state.contenders
  contenders = contenders and kept(lapse_of.contenders(contenders)) and contenders
  local reach = state.reach and kept(state.reach[2]) and state.reach
  local pause = state.pause and kept(state.pause[5]) and state.pause
  local rate = state.rate and kept(lapse_of.rate(state.rate)) and state.rate
  local slow = state.slow and kept(state.slow[2]) and state.slow
  local loss = state.loss and kept(lapse_of.loss(state.loss)) and state.loss
  local releases = releases_at(state.releases, since)
  if releases then
    if releases[1] ~= 0 then kept(releases[1] + MARK_MEMORY) end
    if releases[2] ~= 0 then kept(releases[2] + SERVED_MEMORY) end
    for i = 4, #releases, 2 do kept(releases[i] + RECENT) end
  end
  if is_empty then
    call('DEL', state.key)
    return
  end
  local packed = cmsgpack.pack({
    claims, reach, pause, cold, outside, state.correction, rate, slow, releases, levels, boundaries, loss, named[1] and named or false,
    contenders and struct.pack(WAITING, unpack(contenders, 1, 9)), packed_lives(lives),
  })
  local at = ceil((lapse - correction) / 1000) + LEAP
  if state.correction ~= 0 then at = max(at, floor(clock / 1000) + LONGEST) end
  keep_until(state.key, packed, at)
end

-- Log time: the server's clock, corrected so that it never runs backwards. A message says the newest log time that its sender knows: no
-- less may it be now. And where the clock has leapt ahead of all that it knows, what log time is at the latest.
local upstream = read_state(raw, KEYS[2])
local time = clock + upstream.correction
local now = max(min(time, a[4] ~= 0 and a[4] or 9e15), a[3] ~= 0 and a[3] or -9e15)
correction = now - clock
if now ~= time then
  upstream.correction = correction
  save(upstream, now)
end

-- Whether a state holds what lapsed long ago: the mark of a release or of a reset keeps it from expiring, and so does a correction.
local function is_stale(state)
  local since = now - 1000 * LEAP
  local releases, is_marked = state.releases, state.loss and (state.loss[3] or 0) > 0
  if not releases and state.correction == 0 and not is_marked then return false end
  for _, claim in ipairs(state.claims) do
    if claim[3] <= since then return true end
  end
  for i = 6, #state.cold, 6 do
    if state.cold[i] <= since then return true end
  end
  for i = 1, #state.outside, TOLD do
    if state.outside[i + 7] + state.outside[i + 1] <= since then return true end
  end
  for i = 1, #state.levels, LEVEL do
    if lapse_of.level(state.levels, i) <= since then return true end
  end
  for i = 5, #state.boundaries, BOUNDARY do
    if state.boundaries[i] <= since then return true end
  end
  for _, list in ipairs(state.named) do
    if list[2] <= since then return true end
  end
  for i = LIFE, #state.lives, LIFE do
    if state.lives[i] <= since then return true end
  end
  return (state.rate and lapse_of.rate(state.rate) <= since) or (state.slow and state.slow[2] <= since)
    or (state.loss and lapse_of.loss(state.loss) <= since)
    or (state.reach and state.reach[2] <= since) or (releases and #releases > 2 and releases[4] + RECENT <= since)
end

-- The factor on the quotas of a rate now: it stays for a while, and then rises, slowly first.
local function factor_of(rate)
  local risen, factor = now - rate[3] - rate[4], rate[1]
  local step = risen > 0 and min(floor(risen / max(floor(floor(rate[4] / 4) * 3 / RISE), 1)), RISE) or 0
  return factor + floor((FULL - factor) * step * step / (RISE * RISE))
end

-- An answer: the number of the message, the log time, and what it says.
local function reply(body) return struct.pack('<i8i8', a[1], now) .. body end

-- The same, remembered for so many µs, and not for less long than the message before: a late copy of that must not act.
local lapse = now
local function remember(memory, body)
  -- And for as long as the clock may leap ahead before that is taken back; not as long as a leap that was.
  lapse = max(min(lapse, now + MAX_MEMORY + 1000 * LEAP), now + min(memory, MAX_MEMORY) + 1000 * LEAP)
  if a[1] > 0 then
    keep_until(KEYS[1], struct.pack('<i8i8', a[1], lapse) .. body, end_of_second(lapse))
  end
  return reply(body)
end

-- A message that came before is answered alike; one that came late, or that another process sent under the same name, is not. Where the
-- one that its sender knows of is not there, data was lost: what has `survived` is the last of the stream that is, by its number.
local lost = { survived = 0 }
if record then
  local last, memory = struct.unpack('<i8i8', record)
  if memory > now then
    if last > a[1] then return redis.error_reply('OUTDATED a later message of this sender has been seen') end
    if last == a[1] then return reply(string.sub(record, 17)) end
    if a[2] > 0 and a[2] < last then return redis.error_reply('DUPLICATE another process sends under the same name') end
    lapse, lost.survived = memory, last
  end
end

-- The pause of the whole upstream, as a scope sees it: somewhat later, each by its hash, so that not all come back in one moment.
local function staggered(pause, key)
  local later = floor(pause[2] / 131072 * tonumber(string.sub(key, -38, -35), 16))
  return { pause[1] + later, pause[2] - later, unpack(pause, 3) }
end

-- When everything was released by hand that a scope shares with its whole upstream: what was imposed on it before is void.
local function released_above(state)
  return state ~= upstream and upstream.releases and upstream.releases[1] or 0
end

-- The pause of a scope, while it means anything: not one that began long after now, by a leap of the clock that was taken back.
local function pause_of(state)
  local pause = state.pause
  return pause and pause[5] > now and pause[6] <= now + MINUTE and pause[6] >= released_above(state) and pause or nil
end

-- The same of a rate that refusals have left since then.
local function rate_since(state, since)
  local rate = state.rate
  return rate and rate[11] >= since and rate[11] <= now + MINUTE and rate
end

-- The pauses that are in force for a scope.
local function pauses_of(state)
  local pauses, of_all = { pause_of(state) }, state ~= upstream and pause_of(upstream)
  if of_all then pauses[#pauses + 1] = staggered(of_all, state.key) end
  return pauses
end

-- Beside others the end of the longest pause that lasts, and the gravest cause, with the status of the response that began that pause.
local function paused_by(pauses, stop, cause, status)
  for _, pause in ipairs(pauses) do
    if pause[1] > now then
      stop = max(stop, pause[1])
      if pause[4] > cause then cause, status = pause[4], pause[7] end
    end
  end
  return stop, cause, status
end
