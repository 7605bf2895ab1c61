-- Seats: how many calls are in flight. Who waits for seats of a limit, and whose turn it is. Joined behind holders.lua.

local wants_seats, lease = a[7] % 16 >= 8, 0
local open_seats, seats_for, take_seats

if wants_seats then
  -- Who waits for a seat and has less than an equal part of them asks again so soon; who has its part, so late; and nobody later. Who is so
  -- late keeps nobody from a seat any more, and keeps its place for so long. Where more wait than there are seats, who has had one for a
  -- turn gives it back.
  local POLL, POLL_OF_SERVED, LATEST_POLL, LATE, PLACE, TURN, ANY = 50000, 250000, 1000000, 200000, 10000000, 1000000, 4294967295

  local all_seats, kept, idle, owner = {}, 0, 0, string.match(KEYS[1], '}:replay:(.*)$')
  local process = string.match(owner, '^[^:]*:')

  local function has_place(holder, stamp) return holder[4] > 0 and holder[5] + PLACE > stamp end

  -- Reads what the ask says of seats from the arguments at `at`, and who holds them: keys from `first_key` on. Says where that part ends.
  function open_seats(at, first_key)
    lease, kept, idle = a[at], a[at + 1], a[at + 2]
    for i = first_key, #KEYS do
      local holders, is_kept, roll_call = seat_keys.holders(KEYS[i])
      local named = a[at + 3 + i - first_key]
      local of = { key = KEYS[i], named = named, seats = named, holders = holders, is_kept = is_kept }
      of.others, of.taken, of.sharing = {}, 0, 1
      local place, said = #holders + 1, 0
      for h, holder in ipairs(holders) do
        if holder[1] == owner then
          of.waited, said = has_place(holder, now), holder[2]
          of.since = holder[2] > 0 and holder[3] > now and holder[6]
          -- What lapsed may be kept or not: it was not there.
          of.was_there = of.waited or of.since
          if of.waited then place = h end
        end
      end
      for h, holder in ipairs(holders) do
        if holder[1] ~= owner then
          local held, wanted = holder[3] > now and holder[2] or 0, holder[5] > now and holder[4] or 0
          local other = { held = held, wanted = wanted, before = h < place and 1 or 0 }
          of.others[#of.others + 1], of.taken = other, of.taken + other.held
          if other.held + other.wanted > 0 then
            of.sharing = of.sharing + 1
            -- The lowest limit holds for all; what a process named before does not bind itself.
            if string.sub(holder[1], 1, #process) ~= process then of.seats = min(of.seats, holder[7] or of.seats) end
          end
        end
      end
      of.part = floor(of.seats / of.sharing)
      of.roll_call, of.is_lost = seat_keys.roll_call(roll_call, said, kept, lease)
      of.closed_for = of.roll_call and max(of.roll_call[3] - now, 0) or 0
      lost.is_closed = lost.is_closed or of.closed_for > 0
      all_seats[#all_seats + 1] = of
    end
    return at + 3 + #all_seats
  end

  -- Seats that nobody holds, where the queue that asks holds so many.
  local function free_of(of, held) return of.closed_for > 0 and 0 or max(of.seats - of.taken - held, 0) end

  -- Seats that others are to get before a queue that holds so many gets another.
  local function due_before(of, held)
    local due = 0
    for _, other in ipairs(of.others) do due = due + min(max(held + other.before - other.held, 0), other.wanted) end
    return due
  end

  -- How many seats of a limit may be taken. The next goes to whoever has the fewest; among those who have as many, to who has waited
  -- longest.
  local function most_of(of, wanted)
    local free = free_of(of, kept)
    local most, over = 0, min(wanted, free)
    while most < over do
      local taken = most + floor((over - most) / 2)
      if free > taken + due_before(of, kept + taken) then most = taken + 1 else over = taken end
    end
    return most
  end

  -- For how many callers there are seats, and after how many µs who is short of one asks again.
  function seats_for(callers)
    -- Of no limit there are the idle ones that another stream lends.
    local new, again = all_seats[1] and math.huge or 0, 0
    for _, of in ipairs(all_seats) do
      of.most = most_of(of, max(callers - idle, 0))
      new = min(new, of.most)
    end
    for _, of in ipairs(all_seats) do
      local soon = POLL_OF_SERVED
      if of.closed_for > 0 then
        soon = min(of.closed_for, LATEST_POLL)
      elseif kept + new < max(of.part, 1) then
        soon = min(POLL * (1 + floor(due_before(of, kept + new) / max(of.seats, 1))), LATEST_POLL)
      end
      again = max(again, soon)
    end
    return idle + new, again
  end

  -- How many of the seats that it holds the queue may use again when its calls leave them.
  local function keep_of(of, held, since)
    local lowest, wanted = ANY, 0
    for _, other in ipairs(of.others) do
      if other.wanted > 0 then
        lowest = min(lowest, other.held)
        -- No more than those with fewer want; and about half of the difference at once, as others give back too.
        if other.held + 1 < held then wanted = wanted + other.wanted end
      end
    end
    -- Nobody would get what is given back while none is given.
    if lowest == ANY or of.closed_for > 0 then return ANY end
    if of.part == 0 and lowest == 0 and since + TURN <= now then return 0 end
    return max(lowest + 1, of.part, ceil((held + lowest) / 2), held - max(wanted - free_of(of, held), 0))
  end

  local function save_seats(of, entered, keeps_place)
    local holders, lapse, since, entries = {}, now, now - 1000 * LEAP, {}
    for _, holder in ipairs(of.holders) do
      if holder[1] ~= owner then
        entries[#entries + 1] = holder
      elseif keeps_place then
        entries[#entries + 1] = entered
      end
    end
    if not keeps_place then entries[#entries + 1] = entered end
    local roll_call = of.roll_call and of.roll_call[5] > since and of.roll_call
    if roll_call then holders[1], lapse = roll_call, max(lapse, roll_call[5]) end
    for _, holder in ipairs(entries) do
      local holds, waits = holder[2] > 0 and holder[3] > since, has_place(holder, since)
      if holds or waits then
        holders[#holders + 1] = holder
        lapse = max(lapse, holds and holder[3] or lapse, waits and holder[5] + PLACE or lapse)
      end
    end
    if #holders > 0 then
      keep_until(of.key, cmsgpack.pack(holders), ceil((lapse - correction) / 1000) + LEAP)
    elseif of.is_kept then
      call('DEL', of.key)
    end
  end

  -- Enters what was taken, and that so many callers are short of a seat. Says how many seats the queue may keep, and whether anything has
  -- changed: a message that is not remembered changes nothing.
  function take_seats(granted, short, again)
    local keep, is_news, taken, least = ANY, false, max(granted - idle, 0), math.huge
    for _, of in ipairs(all_seats) do least = min(least, of.most) end
    for _, of in ipairs(all_seats) do
      local held, since = kept + taken, of.since or now
      keep = min(keep, keep_of(of, held, since))
      -- Who waits for seats of one limit keeps nobody from those of another.
      local wanted = of.most == least and min(short, of.seats) or 0
      is_news = is_news or of.was_there or held > 0 or wanted > 0 or of.is_lost
      save_seats(of, { owner, held, now + lease, wanted, now + 4 * again + LATE, since, of.named }, of.waited and taken == 0)
    end
    return keep, is_news
  end
end
