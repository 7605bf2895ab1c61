-- Callers of others that claim the next place of their size. Joined behind seats.lua.

-- Those who claim, by priority and in their order, each with the units of the ask's logs; where the first caller of this ask is among them,
-- which keeps its place if it insists; whether it had claimed; and how far ahead of now the process books whose answers take longest.
local function claims_of(states, sender, insist, priority)
  local turns, equals, had_claim, far = {}, nil, false, 0
  for scope, state in ipairs(states) do
    local claims = {}
    for _, claim in ipairs(state.claims) do -- whose, start, lapse, units by log, priority, weight
      if claim[3] > now then claims[#claims + 1] = claim end
    end
    state.claims = claims
    for _, claim in ipairs(claims) do
      if claim[1] == sender then
        if not had_claim and insist then equals = turns_before(turns, priority) - turns_before(turns, priority - 1) end
        had_claim = true
      else
        local turn
        for _, known in ipairs(turns) do
          if known.owner == claim[1] then turn = known end
        end
        if not turn then
          turn = { owner = claim[1], start = max(claim[2], now), charges = {}, priority = claim[5] }
          for i = 1, #logs do turn.charges[i] = 0 end
          table.insert(turns, turns_before(turns, claim[5]) + 1, turn)
        end
        turn.start = max(turn.start, claim[2])
        for i, log in ipairs(logs) do
          if log.scope == scope then turn.charges[i] = claim[4][log.key] or 0 end
        end
      end
    end
    if state.reach and state.reach[2] <= now then state.reach = false end
    if state.reach then far = max(far, state.reach[1]) end
  end
  local place = equals and turns_before(turns, priority - 1) + equals or turns_before(turns, priority)
  return turns, place + 1, had_claim, far
end

-- The weights of others of a priority, and of higher ones, who claim. Nobody delays them: no share is left for those.
local function claimed_in(state, sender, priority)
  local weights = 0
  for _, claim in ipairs(state.claims) do
    if claim[1] ~= sender and claim[5] <= priority then weights = weights + claim[6] end
  end
  return weights
end

-- Enters what a caller claims, or that it claims no more, among those of a scope: behind those whose turn is before its own. Says whether
-- anything has changed.
local function enter_claim(state, sender, claim, behind)
  local claims, place, changed = {}, 1, claim and true
  for _, known in ipairs(state.claims) do
    changed = true
    if known[1] ~= sender then
      claims[#claims + 1] = known
      for _, owner in ipairs(claim and behind or {}) do
        if owner == known[1] then place = #claims + 1 end
      end
    end
  end
  if claim then table.insert(claims, place, claim) end
  state.claims = claims
  return changed
end
