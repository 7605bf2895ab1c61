-- After a loss of data: no seat is given until those who hold some have had the time to say so again. Joined behind holders.lua.

-- The roll call of a limit that lasts or is remembered, or false; and whether it begins now, by what an ask shows of a loss: its sender
-- remembers a message, or `kept` seats that it was given for so long, which the store has lost, and was not told since a roll call began.
-- `known` is the last that began, and `said` are the seats that the store takes it to hold.
function seat_keys.roll_call(known, said, kept, lease)
  local in_force = known and known[5] > now
  local told, is_forgotten = lost.told, lost.still_has(max(lost.memory, lease)) == false
  local is_lost = is_forgotten or (lost.number > 0 and told + lease > now and said < kept)
  if not is_lost or (in_force and told <= known[6]) then return known, false end
  -- They say so again after a third of the lease, and after 20 s at the latest; and so long takes a message that may be sent again.
  local ends = max(now + min(floor(lease / 3), 20 * SECOND) + SECOND, in_force and known[3] or 0)
  return { '', 4294967295, ends, 0, now + MAX_MEMORY + 1000 * LEAP, now }, true
end
