-- Finds the first key that the other scripts cannot read.
--
-- Atomic, because the type of a key and its content must be of one moment.
--
-- KEYS[1..] keys   of a call that failed
-- ARGV[1..] kinds  what each of them is to the other scripts: a log, told, claim, asking, reach, seen, clock
-- Returns {place, type}: of that key, and what it holds in the server's words; 0 and nothing where all can be read
-- Errors: none
-- Cost: O(1) for each key: logs are searched by the scripts that read them
local keys, args = KEYS, ARGV

local TYPES = { log = 'list', asking = 'zset', told = 'string', claim = 'string', reach = 'string', seen = 'string', clock = 'string' }

-- Whether so many parts of a record, and all after them, are numbers.
local function are_numbers(parts, from, count)
  if type(parts) ~= 'table' or #parts < from + count - 1 then return false end
  for i = from, #parts do
    if type(parts[i]) ~= 'number' then return false end
  end
  return true
end

local readable = {}

function readable.seen(record) return are_numbers(record, 1, 2) end

function readable.claim(record)
  if type(record) ~= 'table' then return false end
  for _, claim in ipairs(record) do
    if type(claim) ~= 'table' or type(claim[1]) ~= 'string' or type(claim[4]) ~= 'table' then return false end
    for _, units in pairs(claim[4]) do
      if type(units) ~= 'number' then return false end
    end
    if not are_numbers({ claim[2], claim[3] }, 1, 2) then return false end
  end
  return #record > 0
end

function readable.reach(record) return are_numbers(record, 1, 2) end

function readable.told(record)
  if type(record) ~= 'table' or type(record[3]) ~= 'table' then return false end
  local hold, guard, foreign = unpack(record)
  if (hold and not are_numbers(hold, 1, 5)) or (guard and not are_numbers(guard, 1, 3)) then return false end
  for i = 1, #foreign, 4 do
    if type(foreign[i]) ~= 'string' or not are_numbers({ unpack(foreign, i + 1, i + 3) }, 1, 3) then return false end
  end
  return true
end

for i, key in ipairs(keys) do
  local kind = args[i]
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' then
    if found ~= TYPES[kind] then return { i, found } end
    if kind == 'clock' and not tonumber(redis.call('GET', key)) then return { i, found } end
    if readable[kind] then
      local unpacked, record = pcall(cmsgpack.unpack, redis.call('GET', key))
      if not (unpacked and readable[kind](record)) then return { i, found } end
    end
  end
end
return { 0, '' }
