-- In front of every script: what each of them reads first. Times are integer microseconds of log time.
local call, format, sub, read = redis.call, string.format, string.sub, struct.unpack
local SECOND, MINUTE, PIECE, MAX_MEMORY, MAX_SILENCE, MAX_DEPTH = 1000000, 60000000, 1000, 60000000, 30000000, 20000
-- A log is trimmed that has more entries than so many quotas and some slack.
local TRIM_QUOTAS, TRIM_SLACK = 3, 64
-- In µs: how far ahead a slot is booked that others are to have rather. Or as long as the answer takes, where that is more.
local SLACK = 20000
-- In ms: by how much the server's clock may leap ahead and no log is lost: each is kept for so much longer; and what is longer than
-- any log counts.
local LEAP, LONGEST = 11000, 2764800000
-- How a state begins, as state.lua packs it, that says at most who waits, and since when logs are there: thirteen parts of fifteen. Then
-- who waits, by these doubles, and what is kept of each log: since when it is there, for how long it counts, until when, and its key.
local NOBODY = '\159\144\194\194\144\144\0\194\194\194\144\144\194\194\194\217'
local SOMEBODY = '\159\144\194\194\144\144\0\194\194\194\144\144\194\194\217\72'
local WAITING, LASTING = '<ddddddddd', '<dddHc0'

-- The arguments: doubles, in which Lua counts, in pieces that fit the stack. To spell the format out takes less than to repeat it.
local packed, a = ARGV[1], nil
local size = #packed / 8
if size <= 48 then
  a = { read(sub('<dddddddddddddddddddddddddddddddddddddddddddddddd', 1, size + 1), packed) }
else
  a = {}
  for from = 1, size, PIECE do
    local count = math.min(PIECE, size - from + 1)
    local piece = { read('<' .. string.rep('d', count), packed, 8 * from - 7) }
    for i = 1, count do a[from + i - 1] = piece[i] end
  end
end
a[size + 1] = nil -- where the next would be

-- The server's clock, or the one that a test supplies; under that keys are kept long. No entry of a log is older than `oldest`.
local clock = ARGV[2]
local ticks, oldest, spelled = not clock, -9e15, nil -- the clock as a decimal number, where that is at hand
if ticks then
  local time = call('TIME')
  local seconds, micros = time[1], time[2]
  clock, oldest, spelled = seconds * SECOND + micros, 1e15, #micros == 6 and seconds .. micros
else
  clock = tonumber(clock)
end

local record = a[1] > 0 and call('GET', KEYS[1])
local raw = call('GET', KEYS[2])
