-- Has a process known to be there, with who waits in it and how it describes the upstream; or gone.
--
-- Atomic, because processes are counted.
--
-- KEYS[1] replay     the last message of the sender's stream, and its answer
-- KEYS[2] state      of the whole upstream
-- KEYS[3] processes  a hash: of each process, `p` and its name; of each description, `d` and its hash: when it was said, when it
--                    lapses, the name or the hash in two halves, how many integers follow, and these; and '': when those were taken out
--                    last that have lapsed, and how many processes there are
-- ARGV[1] doubles of 8 bytes: number, previous, known, latest, as for book.lua; lasting (µs for which the process is known of if it says
--         nothing more, or 0: it is gone), size (integers that it says of itself), upper, lower (halves of its name); then what it says
--         of itself, the fourth and fifth of which are the halves of its description's hash; then, where it describes the upstream,
--         upper and lower half of that hash, and the description
-- ARGV[2] clock      in tests only
-- Returns integers of 8 bytes: number, now, processes (those that lapsed within the last seconds among them), 1 where it is known how
--         this one describes the upstream, else 0
-- Errors: OUTDATED, DUPLICATE, GARBAGE, as for book.lua
-- Cost: O(1); every 5 s O(processes)
local KEPT, SWEEP = 180000000, 5000000
local lasting, size, upper, lower = a[5], a[6], a[7], a[8]
local key, described, hash = KEYS[3], size + 9, 12

-- Read.
local swept, count = now, 0
local counted = call('HGET', key, '')
if counted then swept, count = struct.unpack('<i8i8', counted) end
local lapsed = {}
if now >= swept + SWEEP or now < swept then
  local all = call('HGETALL', key)
  swept, count = now, 0
  for i = 1, #all, 2 do
    if all[i] ~= '' then
      local _, lapse = struct.unpack('<i8i8', all[i + 1])
      if lapse <= now then lapsed[#lapsed + 1] = all[i]
      elseif string.sub(all[i], 1, 1) == 'p' then count = count + 1 end
    end
  end
end

-- Write. Says how many are new.
local function write(kind, lapse, first, last, high, low)
  local parts = { struct.pack('<i8i8i8i8i8', now, lapse, high, low, last - first + 1) }
  for i = first, last do parts[#parts + 1] = struct.pack('<i8', a[i]) end
  return call('HSET', key, kind .. format('%d.%d', high, low), table.concat(parts))
end

for _, field in ipairs(lapsed) do call('HDEL', key, field) end
if lasting > 0 then
  count = count + write('p', now + min(lasting, KEPT), 9, size + 8, upper, lower)
  if a[described] then write('d', now + KEPT, described + 2, #a, a[described], a[described + 1]) end
else
  count = count - call('HDEL', key, format('p%d.%d', upper, lower))
end
call('HSET', key, '', struct.pack('<i8i8', swept, count))
if ticks then call('PEXPIREAT', key, format('%d', end_of_second(now) + KEPT / 1000 + LEAP)) end
local known = call('HGET', key, 'd' .. format('%d.%d', a[hash], a[hash + 1]))
local _, lapse = struct.unpack('<i8i8', known or struct.pack('<i8i8', 0, 0))
return remember(MAX_MEMORY, struct.pack('<i8i8', count, lapse > now and 1 or 0))
