-- Says which processes are known to be there, and how they describe the upstream, without changing anything.
--
-- Atomic, because a description must be one of theirs.
--
-- KEYS[1] replay     the last message of the sender's stream, and its answer
-- KEYS[2] state      of the whole upstream
-- KEYS[3] processes  as renew.lua says
-- ARGV[1] doubles of 8 bytes: number, previous, known, latest, as for book.lua
-- ARGV[2] clock      in tests only
-- Returns integers of 8 bytes: number, now, how many processes; then of each of them, and then of each description: when it was said, when
--         it lapses, the name or the hash in two halves, how many integers follow, and these
-- Errors: OUTDATED, DUPLICATE, GARBAGE, as for book.lua
-- Cost: O(processes)
local there, descriptions = {}, {}
local all = call('HGETALL', KEYS[3])
for i = 1, #all, 2 do
  if all[i] ~= '' then
    local of = string.sub(all[i], 1, 1) == 'p' and there or descriptions
    local _, lapse = struct.unpack('<i8i8', all[i + 1])
    if lapse > now then of[#of + 1] = all[i + 1] end
  end
end
return reply(struct.pack('<i8', #there) .. table.concat(there) .. table.concat(descriptions))
