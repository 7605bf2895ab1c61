-- Terms of a log that processes name lately, where not all name the same, as while a release is rolled out: those of each hold for all who
-- ask. A state keeps of each list of terms: its log, until when it counts, the process that names it where it is one alone, else '', and
-- the terms as an ask says them, their count first. Joined behind boundaries.lua.

local named_terms = {}
do
  -- So many lists are kept of a log.
  local MOST_LISTS, sender = 4, string.match(KEYS[1], '}:replay:(%x*):')

  -- What the term says that stands at `at` of some integers, but for boundaries, which move; and where the next stands.
  local function term_at(list, at)
    local said, kind = format('%d %d', list[at], list[at + 1]), list[at + 1] < 0 and list[at + 2]
    if kind == 1 then return said .. format(' %d %d', list[at + 3], list[at + 4]), at + 5 end
    return said, at + (kind and 4 + 2 * NAMED or 2)
  end

  -- What all terms say whose count stands at `at`; and where they end.
  local function list_at(list, at)
    local said, from = {}, at + 1
    for t = 1, list[at] do said[t], from = term_at(list, from) end
    return table.concat(said, ';'), from
  end

  -- Whether the sender alone named a list, before it was given other terms than `own`.
  local function has_withdrawn(list, log, own)
    return list[1] == log.key and list[3] == sender and list_at(list, 4) ~= own
  end

  -- The lists that count, and that differ from `own`.
  local function of_others(log, own)
    local others = {}
    for _, list in ipairs(log.state.named) do
      if list[1] == log.key and list[2] > now and list[3] ~= sender and list_at(list, 4) ~= own then others[#others + 1] = list end
    end
    return others
  end

  -- The terms that others name of a log, and that are not among those at `at` of the arguments: the list of each, and its place there.
  function named_terms.beside(log, at)
    local terms, known, from = {}, {}, at + 1
    if not log.state.named[1] or a[at] == 0 then return terms end
    for _ = 1, a[at] do
      local said
      said, from = term_at(a, from)
      known[said] = true
    end
    for _, list in ipairs(of_others(log, (list_at(a, at)))) do
      from = 5
      for _ = 1, list[4] do
        local said, next = term_at(list, from)
        if not known[said] then known[said], terms[#terms + 1] = true, { list, from } end
        from = next
      end
    end
    return terms
  end

  -- The strictest of those of some logs: the place of its log, its quota and its span; or nothing.
  function named_terms.strictest(logs)
    local strictest, widest = {}, -1
    for i, log in ipairs(logs) do
      for _, term in ipairs(log.named) do
        local units, length, kind, interval = unpack(term[1], term[2], term[2] + 3)
        local each = ceil(length < 0 and kind == 1 and interval / 1000 or math.abs(length) / units)
        if each > widest then strictest, widest = { i, units, math.abs(length) }, each end
      end
    end
    return strictest
  end

  -- Whether more counts in a log than its terms ever let start: somebody asks by others, or calls used more than they were charged.
  local function is_overfull(log)
    local function nth(n)
      local known = log.read[n]
      if known == nil then known = stamp_of(call('LINDEX', log.key, format('%d', -n)), log.key) end
      return known
    end
    local newest = nth(1)
    for t = 1, newest and log.own or 0 do
      local term = log.terms[t]
      local before = not term.bucket and nth(term.full + 1)
      if term.bucket then
        level_of(log, term)
        local level = term.levels[0]
        if level.left > max(term.bucket.depth, 1000 * (now - level.at)) then return true end
      elseif before and term.calendar then
        if before + term.base > now and before >= since_boundary(term.calendar) then return true end
      elseif before and before + term.base > max(newest, now) then
        return true
      end
    end
    return false
  end

  -- The sender names its terms of a log for so long where that is overfull by them, or others name others; and those no more that it named
  -- before.
  local function name(log, length, checks)
    local state = log.state
    local own, from = list_at(a, log.at)
    local overfull = checks and is_overfull(log)
    if not overfull and not state.named[1] then return end
    local kept, of_log, mine, is_news, names = {}, {}, nil, false, overfull or of_others(log, own)[1]
    for _, list in ipairs(state.named) do
      local is_own = list[1] == log.key and list_at(list, 4) == own
      if has_withdrawn(list, log, own) then
        is_news = is_news or list[2] > now
      elseif not (names and is_own and list[2] <= now) then
        kept[#kept + 1] = list
        if list[1] == log.key then of_log[#of_log + 1] = #kept end
        if is_own then mine = list end
      end
    end
    if names then
      if mine then
        local by = mine[3] == sender and sender or ''
        -- Seldom, as it is written each time.
        if by ~= mine[3] or 4 * (mine[2] - now) < 3 * length then
          mine[2], mine[3], is_news = now + length, by, true
          -- What it said before names boundaries that are past one day.
          for part = log.at, from - 1 do mine[4 + part - log.at] = a[part] end
        end
      else
        local first = of_log[1]
        for _, place in ipairs(of_log) do
          if kept[place][2] < kept[first][2] then first = place end
        end
        if #of_log >= MOST_LISTS then table.remove(kept, first) end
        kept[#kept + 1], is_news = { log.key, now + length, sender, unpack(a, log.at, from - 1) }, true
      end
    end
    if is_news then state.named, state.is_news = kept, true end
  end

  -- The same for each log that callers are charged in; `checks` whether any is overfull. Not for who only observes.
  function named_terms.name(logs, runs, length, checks)
    for i, log in ipairs(logs) do
      local charged = false
      for _, run in ipairs(runs) do charged = charged or run.charges[i] > 0 end
      if charged and log.own > 0 then name(log, length, checks) end
    end
  end
end
