-- Enters what others use of the same quota, as the upstream reports it, and widens the guard after a refusal that nothing explains.
--
-- Atomic, because what the log allows must be read in the moment in which the difference is entered.
--
-- KEYS[1] seen     the sender's last hold or lesson, and its answer
-- KEYS[2] told     by the upstream, of this scope: holds the foreign use
-- KEYS[3] told_all of the whole upstream: holds the guard; the same where there is no scope
-- KEYS[4] log      that the reports are about
-- KEYS[5] clock    by how much log time differs from the server's clock
-- ARGV[1] now      stamp, or empty for the server's clock
-- ARGV[2] number   of this message in the sender's stream
-- ARGV[3] started  stamp of the call's start, or empty for now
-- ARGV[4] late     µs: calls that started so long after it had not arrived when the upstream counted
-- ARGV[5] refused  1: the call was refused, and nothing was held for it yet
-- ARGV[6] memory   µs for which a wider guard lasts
-- ARGV[7..] for each report: quota and span (µs) of a term, window (µs) for which the upstream counts, units remaining, µs until
--         they reset
-- Returns {now, foreign, widened}: stamp; units now entered, of the term with the most; thousandths by which spans are wider
-- Errors: OUTDATED a later hold or lesson of this sender has been seen; GARBAGE the log holds what is no time
-- Cost: O(log of the entries) for each report
local seen_key, told_key, told_all_key, log_key, clock_key, now = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1]
local number, started, late = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local refused, memory = ARGV[5] == '1', tonumber(ARGV[6])
local keys, args = KEYS, ARGV

local expires
now, expires = log_time(now, clock_key)
started = started or now

local FIRST_WIDENING, MAX_WIDENING, STEPS, MAX_MEMORY = 50, 1000, 16, 60000000

-- Read.
local seen, outdated, remembered = recall(redis.call('GET', seen_key), now, number)
if outdated then return outdated end
if seen then return { now, seen[3], seen[4] } end
local told = read_told(redis.call('GET', told_key), now)
local all = told
if told_all_key ~= told_key then all = read_told(redis.call('GET', told_all_key), now) end

-- Decide. More remaining than the log allows is ignored. Units are entered for a span at the most.
local foreign, entered, explained, counted = 0, false, false, math.min(started + late, now)
local longest = 0
for i = 7, #args, 5 do
  local quota, span, window = tonumber(args[i]), tonumber(args[i + 1]), tonumber(args[i + 2])
  local remaining, reset = tonumber(args[i + 3]), tonumber(args[i + 4])
  longest = math.max(longest, span)
  -- Ends closer together than `grid` are one, so that a term has few steps.
  local grid = math.floor(span / STEPS)
  -- After so long, entries of before may be forgotten and would look like foreign use: all that came since count.
  local used = newer_than(log_key, now - span)
  if counted + grid >= now then used = newer_than(log_key, counted - window) - newer_than(log_key, counted) end
  local units, lapse = quota - used - remaining, now + math.min(reset + grid, span)
  -- And what they use by the time that ours arrive, at the pace of a whole span.
  units = math.min(units + math.ceil(units / STEPS), quota)
  -- What the upstream counted a window ago counts no more.
  if units > 0 and lapse > now and counted + window > now then
    -- Of one term, in order of their ends: each has fewer units than the one before.
    local steps, at, dominated = {}, nil, false
    for _, step in ipairs(told.foreign) do
      local same = step.key == log_key and step.span == span
      local outlasts = same and step.units >= units and step.lapse + grid >= lapse
      dominated = dominated or outlasts
      if same and step.lapse > lapse then at = at or #steps + 1 end
      -- A step of no more units that ends no later says nothing any more.
      if not same or outlasts or step.units > units or step.lapse > lapse + grid then table.insert(steps, step) end
    end
    if not dominated then
      table.insert(steps, at or #steps + 1, { key = log_key, span = span, units = units, lapse = lapse })
      told.foreign, entered = steps, true
    end
    foreign, explained = math.max(foreign, units), true
  end
end
-- What was entered before explains a refusal as well.
for _, step in ipairs(told.foreign) do explained = explained or step.key == log_key end
local widened = widened_by(all.guard, now)
-- A call from before the guard was widened belongs to the same incident.
local unexplained = refused and not explained
local widens = unexplained and not (all.guard and started < all.guard.since)
if widens then
  widened = math.min(math.max(2 * widened, FIRST_WIDENING), MAX_WIDENING)
  all.guard = { widened = widened, since = now, lapse = now + memory }
end

-- Write.
if entered or (widens and all == told) then write_told(told_key, told, now, expires) end
if widens and all ~= told then write_told(told_all_key, all, now, expires) end
if foreign > 0 or unexplained then
  -- Who learned nothing may learn more from the same message later.
  local lasting = math.min(math.max(longest, unexplained and memory or 0), MAX_MEMORY)
  remember(seen_key, number, now, math.max(now + lasting, remembered), expires, { foreign, widened })
end
return { now, foreign, widened }
