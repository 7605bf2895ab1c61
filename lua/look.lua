-- Says which scopes were released lately, and what is or was paused, without changing anything.
--
-- Atomic, because a release between two of its reads would be told to nobody.
--
-- KEYS[1] replay   the last message of the sender's stream, and its answer
-- KEYS[2] state    of the whole upstream
-- KEYS[3..] states of scopes that are looked at
-- ARGV[1] doubles of 8 bytes: number, previous, known, latest, as for book.lua; since (log time of the last look)
-- ARGV[2] clock    in tests only
-- Returns integers of 8 bytes: number, now; for the whole upstream, and for each scope: end of its last pause that is remembered, or 0,
--         and its cause; then for each release since: its scope, in four integers of 32 bits; each -1 for the whole upstream and all its
--         scopes
-- Errors: OUTDATED, DUPLICATE, GARBAGE, as for book.lua
-- Cost: O(scopes)
local since, body = a[5], {}
for i = 2, #KEYS do
  local state = upstream
  if i > 2 then state = read_state(call('GET', KEYS[i]), KEYS[i]) end
  local stop, cause = 0, 0
  for _, pause in ipairs(pauses_of(state)) do stop, cause = max(stop, pause[1]), max(cause, pause[4]) end
  body[#body + 1] = struct.pack('<i8i8', stop, cause)
end
local releases = upstream.releases or { 0, 0 }
if since + RECENT <= now then
  body[#body + 1] = struct.pack('<i8i8i8i8', -1, -1, -1, -1)
else
  for i = 3, #releases, 2 do
    local key, at = releases[i], releases[i + 1]
    if at >= since and at + RECENT > now then
      local parts = { -1, -1, -1, -1 }
      for part = 1, key ~= '' and 4 or 0 do
        parts[part] = tonumber(string.sub(key, 8 * part - 46, 8 * part - 39), 16)
      end
      body[#body + 1] = struct.pack('<i8i8i8i8', unpack(parts))
    end
  end
end
return reply(table.concat(body))
