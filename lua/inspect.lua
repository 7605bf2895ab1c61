-- Finds the first key that the other scripts cannot read. Stands alone.
--
-- Atomic, because the type of a key and its content must be of one moment.
--
-- KEYS[1..] keys   of a call that failed
-- ARGV[1..] kinds  what each of them is to the other scripts: a replay, a state, a log, seats, processes
-- Returns {place, type}: of that key, and what it holds in the server's words; 0 and nothing where all can be read
-- Errors: none
-- Cost: O(1) for each key: logs are searched by the scripts that read them; of processes O(these)
local TYPES = { log = 'list', state = 'string', replay = 'string', seats = 'string', processes = 'hash' }

local function are_numbers(parts, from, to)
  if type(parts) ~= 'table' then return false end
  for i = from, to do
    if type(parts[i]) ~= 'number' then return false end
  end
  return true
end

local readable = {}

function readable.replay(record) return #record >= 24 and #record % 8 == 0 end

function readable.processes(all)
  for i = 2, #all, 2 do
    if #all[i] < (all[i - 1] == '' and 16 or 40) or #all[i] % 8 ~= 0 then return false end
  end
  return true
end

function readable.seats(record)
  local unpacked, holders = pcall(cmsgpack.unpack, record)
  if not unpacked or type(holders) ~= 'table' then return false end
  for _, holder in ipairs(holders) do
    if type(holder) ~= 'table' or type(holder[1]) ~= 'string' or not are_numbers(holder, 2, holder[7] and 7 or 6) then return false end
  end
  return true
end

function readable.state(record)
  local unpacked, parts = pcall(cmsgpack.unpack, record)
  if not unpacked or type(parts) ~= 'table' or #parts ~= 15 or type(parts[6]) ~= 'number' then return false end
  local claims, reach, pause, cold, outside = unpack(parts)
  if type(claims) ~= 'table' or type(cold) ~= 'table' or type(outside) ~= 'table' or type(parts[10]) ~= 'table'
    or type(parts[11]) ~= 'table' then return false end
  for _, claim in ipairs(claims) do
    if type(claim) ~= 'table' or type(claim[1]) ~= 'string' or type(claim[4]) ~= 'table' then return false end
    if not are_numbers(claim, 2, 3) or not are_numbers(claim, 5, 6) then return false end
    for _, units in pairs(claim[4]) do
      if type(units) ~= 'number' then return false end
    end
  end
  for i = 1, #cold, 6 do
    if type(cold[i]) ~= 'string' or not are_numbers(cold, i + 1, i + 5) then return false end
  end
  for i = 1, #outside, 9 do
    if type(outside[i]) ~= 'string' or not are_numbers(outside, i + 1, i + 8) then return false end
  end
  local rate, slow, releases, levels = parts[7], parts[8], parts[9], parts[10]
  for i = 1, type(levels) == 'table' and #levels or 0, 9 do
    if type(levels[i]) ~= 'string' or not are_numbers(levels, i + 1, i + 8) then return false end
  end
  for i = 1, #parts[11], 5 do
    if type(parts[11][i]) ~= 'string' or not are_numbers(parts[11], i + 1, i + 4) then return false end
  end
  if parts[13] and type(parts[13]) ~= 'table' or parts[15] and type(parts[15]) ~= 'string' then return false end
  local at = 1
  while parts[15] and at <= #parts[15] do
    local is_read, _, _, _, _, next_at = pcall(struct.unpack, '<dddHc0', parts[15], at)
    if not is_read then return false end
    at = next_at
  end
  for _, list in ipairs(parts[13] or {}) do
    if type(list) ~= 'table' or type(list[1]) ~= 'string' or type(list[3]) ~= 'string' then return false end
    if not are_numbers(list, 2, 2) or not are_numbers(list, 4, math.max(#list, 4)) then return false end
  end
  if releases and type(releases) ~= 'table' then return false end
  for i = 3, releases and #releases or 0, 2 do
    if type(releases[i]) ~= 'string' or not are_numbers(releases, i + 1, i + 1) then return false end
  end
  return (not parts[14] or type(parts[14]) == 'string' and #parts[14] == 72) and (not reach or are_numbers(reach, 1, 2))
    and (not pause or are_numbers(pause, 1, 11)) and (not rate or are_numbers(rate, 1, 11)) and (not slow or are_numbers(slow, 1, 3))
    and (not releases or are_numbers(releases, 1, 2)) and (not parts[12] or are_numbers(parts[12], 1, 2))
end

for i, key in ipairs(KEYS) do
  local kind = ARGV[i]
  local found, read = redis.call('TYPE', key).ok, kind == 'processes' and 'HGETALL' or 'GET'
  if found ~= 'none' and (found ~= TYPES[kind] or (readable[kind] and not readable[kind](redis.call(read, key)))) then
    return { i, found }
  end
end
return { 0, '' }
