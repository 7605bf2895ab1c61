-- What the scripts share that take note of what an upstream told. Joined between the prelude and each of them.

-- Writes what an upstream told, until none of it matters.
local function write_told(key, told, now, expires)
  local hold, guard, foreign, stamp = told.hold, told.guard, {}, now
  if hold then stamp = math.max(stamp, hold.forgotten) end
  if guard then stamp = math.max(stamp, guard.lapse) end
  for _, step in ipairs(told.foreign) do
    for _, part in ipairs({ step.key, step.span, step.units, step.lapse }) do table.insert(foreign, part) end
    stamp = math.max(stamp, step.lapse)
  end
  if stamp <= now then return end
  hold = hold and { hold.stop, hold.recovery, hold.refusals, hold.cause, hold.forgotten } or false
  guard = guard and { guard.widened, guard.since, guard.lapse } or false
  redis.call('SET', key, cmsgpack.pack({ hold, guard, foreign }))
  if expires then redis.call('PEXPIRE', key, text(math.ceil((stamp - now) / 1000) + LEAP)) end
end
