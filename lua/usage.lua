-- Counts what logs hold, without changing anything.
--
-- Atomic, because the counts of several logs must be of one moment.
--
-- KEYS, ARGV as for book.lua, with number 0 and up to the terms of the logs: nobody asks for anything
-- Returns integers of 8 bytes: 0, now; for each log: µs that its longest pause lasts, or 0, µs for which the upstream told to wait, µs
--         since it began, cause, status, millionths of the quotas that are left, and quota and span of the strictest term that others name
--         and this does not, or zeros, and what refusals left: millionths, longest span, µs for which calls come slower; then for each
--         term: units that it allows, units that count, units that others have used, µs from now until one more may start, and µs for which
--         others are known of; -1 where they are not; then for each limit on calls in flight: seats that are held
-- Errors: GARBAGE, as for book.lua
-- Cost: O(log of the entries) for each term
local states, next_key = read_states(a[8], a[9] == 1)
local at, body = 10 + #states, ''
local last_log = seat_keys.before()
for i = next_key, last_log do
  local state, log = states[a[at]], nil
  log, at = open_log(KEYS[i], state, at + 1)
  local longest, left = { 0, 0, 0, 0, now, now, 0, now }, FULL
  for _, pause in ipairs(state.pauses) do
    if pause[1] > max(now, longest[1]) then longest = pause end
  end
  for _, rate in ipairs(rates_of(state)) do left = min(left, rate[2]) end
  local stop, began = max(longest[1] - now, 0), max(now - longest[6], 0)
  body = body .. struct.pack('<i8i8i8i8i8i8', stop, max(longest[8] - now, stop), began, longest[4], longest[7], left)
  local named = named_terms.strictest({ log })
  body = body .. struct.pack('<i8i8', named[2] or 0, named[3] or 0)
  body = body .. struct.pack('<i8i8i8', unpack(slower_of({ state }) or { FULL, 0, 0 }))
  for _, term in ipairs(log.terms) do
    local alone = {
      key = log.key, terms = { term }, pauses = state.pauses, state = state, settles = log.settles, has_calendar = term.calendar,
      interval = ceil(term.bucket and term.left.interval / 1000 or term.span / term.quota),
      has_outside = log.has_outside, has_cold = log.has_cold, read = {}, runs = 0, count = 0, ahead = 1,
    }
    local told = term.outside
    local outside, since = told and told.lapse > now and told.units or 0, told and max(now - told.since, 0) or -1
    local used = term.bucket and units_in(level_of(alone, term), term.left)
      or term.calendar and newer_than(log.key, max(since_boundary(term.calendar) - 1, now - term.span))
      or newer_than(log.key, now - term.span) + taken_by_cold(term, now)
    body = body .. struct.pack('<i8i8i8i8i8', term.quota, used, outside, earliest(alone, now, 1) - now, since)
  end
end
for i = last_log + 1, #KEYS do
  local taken = 0
  for _, holder in ipairs(seat_keys.holders(KEYS[i])) do
    if holder[3] > now then taken = taken + holder[2] end
  end
  body = body .. struct.pack('<i8', taken)
end
return reply(body)
