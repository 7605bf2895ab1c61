-- Who waits, by priority: 1 high, 2 normal, 3 low; each with its weight. Joined in front of shares.lua.
local NORMAL = 2
local weight = floor(a[7] / 16) % 128 + 1

-- Where one is counted among those who wait that was told so: its count of this period, or of the one before.
local function counted_at(all, told)
  for at = 4, all and told ~= 0 and 9 or 0 do
    local ends = at < 7 and all[1] or all[2]
    if told == ends + (at - 4) % 3 + 1 - NORMAL and all[at] > 0 then return at end
  end
end

-- How long a period is of those whose turn comes after so long, and who book so far ahead: nobody is silent for as long.
local function period_of(turn, horizon) return min(max(turn, 8 * horizon), MAX_SILENCE) + 2 * horizon end

-- How much longer than it was told whoever waits for a log is counted at least, by what is left of its quotas. Others may book less far
-- ahead than who asks, though mostly no less than by default.
local function least_period(log) return period_of(log.own_pace or 0, min(a[5], 250000)) end

-- Those who wait, in a new period where theirs has ended; false where nobody does. What is granted comes back within `span`; where units
-- come one by one, one in each `interval`.
local function waiting_now(contenders, span, interval)
  local all = contenders
  -- One that has not begun is of a leap of the clock that was taken back.
  if all and (all[1] <= now or all[1] - all[3] > now) then
    local over = all[1] + all[3] <= now or all[1] > now
    local length = period_of(max(span, over and 0 or (all[4] + all[5] + all[6]) * interval), a[5])
    all = { now + length, over and 0 or all[1], length, 0, 0, 0, 0, 0, 0 }
    for at = 4, over and 0 or 6 do all[at + 3] = contenders[at] end
  end
  return all and max(unpack(all, 4, 9)) > 0 and all
end

-- The weights of others who wait for a scope, of a priority and of higher ones.
local function rivals_of(state, priority)
  local all, at, weights = state.contenders, state.counted_at, 0
  for of = 1, all and priority or 0 do weights = weights + all[3 + of] + all[6 + of] end
  if all and at and (at - 4) % 3 < priority then weights = weights - min(all[at], weight) end
  return weights
end

-- How far ahead callers of each priority book. What lies further ahead than the next few milliseconds is left for those who have a higher
-- one; beside both higher ones those of the lowest book no further than an eighth of that, after the others. Where others wait, this holds
-- for those of the same queue as well: `first` is the highest priority that it asks by, and it may be counted by a higher one.
local function limits_of(states, soonest, slack, limit, first)
  local limits = { limit, limit, limit }
  for _, state in ipairs(states) do
    local own = min(state.counted_at and (state.counted_at - 4) % 3 + 1 or first, first)
    for priority = NORMAL, 3 do
      local beside = rivals_of(state, priority) > 0 and weight or 0
      local higher = rivals_of(state, priority - 1) + (own < priority and beside or 0)
      local above = priority > NORMAL and rivals_of(state, priority - 2) + (own < priority - 1 and beside or 0) or 0
      local near = above > 0 and higher > above and floor(slack / 8) or slack
      if higher > 0 then limits[priority] = min(limits[priority], soonest + near) end
    end
  end
  return limits
end
