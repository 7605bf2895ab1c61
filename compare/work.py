"""The work that every library is given."""

from figures import SECOND

QUOTA = 50
WINDOW_SECONDS = 5
PROCESSES = 4
CALLERS = 8
RUN_SECONDS = 22

# The process whose clock is fast, and by how much.
FAST_PROCESS = 0
FAST_BY_SECONDS = 2

# Redis loses its data when so many quotas were used since it last did: in the midst of a burst, where there are bursts.
LOSSES = [1.1, 1.5, 1.9]

# A run in which the machine stood still for longer says little: it is made again, so many times in all.
STALL_SECONDS = 0.1
ATTEMPTS = 3

WINDOW = WINDOW_SECONDS * SECOND
EVERYBODY = [(process, caller) for process in range(PROCESSES) for caller in range(CALLERS)]
