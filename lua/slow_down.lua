-- Lowers the quotas of a scope by hand for a while.
--
-- Atomic, because nothing else that was imposed on the scope may be lost.
--
-- KEYS[1] replay   the last message of the sender's stream, and its answer
-- KEYS[2] state    of the whole upstream
-- KEYS[3] state    of the scope; none where it is the whole upstream, with all its scopes
-- ARGV[1] doubles of 8 bytes: number, previous, known, latest, as for book.lua; factor (millionths of the quotas that are left), lasting
--         (µs)
-- ARGV[2] clock    in tests only
-- Returns integers of 8 bytes: number, now
-- Errors: OUTDATED, DUPLICATE, GARBAGE, as for book.lua
-- Cost: O(1)
local factor, lasting = a[5], a[6]
local state = KEYS[3] and read_state(call('GET', KEYS[3]), KEYS[3]) or upstream
state.slow = { factor, now + lasting, now }
save(state, now)
return remember(MAX_MEMORY, '')
