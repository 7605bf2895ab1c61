-- Who holds seats of a limit on calls in flight, or waits for some. Joined behind state.lua.
--
-- The key of a limit holds a list of them, in the order in which they began to wait; of each: whose, seats that it holds, until when,
-- seats that it is short of, until when it asks again if it still waits, since when it holds any, how many there are by its limit. After a
-- loss of data one that is nobody holds all of them until a roll call is over; of that also until when it is remembered, and when it began.

local seat_keys = {}

-- How many of the keys come before those of seats.
function seat_keys.before()
  local count = #KEYS
  while string.find(KEYS[count], '}[^:]*:seats$') do count = count - 1 end
  return count
end

-- The list at a key, whether there is one, and the roll call or false.
function seat_keys.holders(key)
  local packed = call('GET', key)
  if not packed then return {}, false, false end
  local is_read, holders = pcall(cmsgpack.unpack, packed)
  if not is_read or type(holders) ~= 'table' then garbage(key) end
  local known, roll_call = {}, false
  for _, holder in ipairs(holders) do
    if type(holder) ~= 'table' or type(holder[1]) ~= 'string' then garbage(key) end
    for part = 2, 6 do
      if type(holder[part]) ~= 'number' then garbage(key) end
    end
    if holder[7] and type(holder[7]) ~= 'number' then garbage(key) end
    if holder[1] == '' then roll_call = holder else known[#known + 1] = holder end
  end
  return known, true, roll_call
end

