-- Callers of others that claim the next place of their size. Joined behind seats.lua.

-- Those who claim, in their order, each with the units of the ask's logs; where the first caller of this ask is among them, if it insists;
-- whether it had claimed; how many claim in each scope; and how far ahead of now the process books whose answers take longest.
local function claims_of(states, sender, insist)
  local turns, place, had_claim, claiming_in, far = {}, nil, false, {}, 0
  for scope, state in ipairs(states) do
    local claims = {}
    for _, claim in ipairs(state.claims) do -- whose, start, lapse, units by log
      if claim[3] > now then claims[#claims + 1] = claim end
    end
    state.claims, claiming_in[scope] = claims, 0
    for _, claim in ipairs(claims) do
      if claim[1] == sender then
        if not had_claim and insist then place = #turns + 1 end
        had_claim = true
      else
        claiming_in[scope] = claiming_in[scope] + 1
        local turn
        for _, known in ipairs(turns) do
          if known.owner == claim[1] then turn = known end
        end
        if not turn then
          turn = { owner = claim[1], start = max(claim[2], now), charges = {} }
          for i = 1, #logs do turn.charges[i] = 0 end
          turns[#turns + 1] = turn
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
  return turns, place or #turns + 1, had_claim, claiming_in, far
end
