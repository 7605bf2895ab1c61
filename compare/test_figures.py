"""The arithmetic, on lists that one can check by eye."""

import unittest

from figures import (
    Call,
    Wait,
    calls_of_each,
    jain,
    longest_wait,
    quota_used,
    share_of,
    worst_around,
    worst_window,
)

CALLERS = [(0, 0), (0, 1), (1, 0)]
CALLS = [Call(1, 0, 0), Call(2, 0, 1), Call(4, 0, 0), Call(9, 0, 0)]


class Figures(unittest.TestCase):
    def test_a_window_is_half_open(self) -> None:
        self.assertEqual(worst_window([], 5), 0)
        self.assertEqual(worst_window([0, 5, 10], 5), 1)
        self.assertEqual(worst_window([0, 4, 5, 8, 9], 5), 3)

    def test_jains_index_goes_from_one_to_a_share(self) -> None:
        self.assertEqual(jain([7, 7, 7, 7]), 1.0)
        self.assertEqual(jain([7, 0, 0, 0]), 0.25)
        self.assertEqual(jain([0, 0]), 0.0)

    def test_the_quota_is_used_when_each_window_has_one(self) -> None:
        self.assertAlmostEqual(quota_used([0, 0, 10, 10, 20, 20], 2, 10) or 0, 1.0)
        self.assertAlmostEqual(quota_used([0, 5, 10, 15, 20], 2, 10) or 0, 1.0)
        self.assertAlmostEqual(quota_used([0, 0, 20, 20, 40, 40], 2, 10) or 0, 0.5)
        self.assertIsNone(quota_used([5, 5], 2, 10))
        self.assertIsNone(quota_used([], 2, 10))

    def test_a_wait_counts_before_the_first_call_and_after_the_last(self) -> None:
        self.assertEqual(longest_wait(CALLS, CALLERS[:2], 0, 10), Wait(8, True))
        self.assertEqual(longest_wait(CALLS, CALLERS, 0, 10), Wait(10, True))
        self.assertEqual(longest_wait([*CALLS, Call(9, 0, 1)], CALLERS[:2], 0, 10), Wait(7, False))

    def test_who_never_called_is_counted(self) -> None:
        self.assertEqual(calls_of_each(CALLS, CALLERS), [3, 1, 0])

    def test_a_process_has_its_share(self) -> None:
        self.assertEqual(share_of(CALLS, 0), 1.0)
        self.assertEqual(share_of([*CALLS, Call(9, 1, 0)], 1), 0.2)
        self.assertEqual(share_of([], 1), 0.0)

    def test_only_what_is_near_a_moment_is_around_it(self) -> None:
        stamps = [0, 0, 0, 9, 11, 12, 20, 20, 20]
        self.assertEqual(worst_around(stamps, [10], 5), 3)
        self.assertEqual(worst_around(stamps, [5, 10], 5), 2 + 1)
        self.assertEqual(worst_around(stamps, [10, 16], 5), 3)
        self.assertEqual(worst_around(stamps, [4, 10], 5), 3)
        self.assertEqual(worst_around(stamps, [], 5), 0)


if __name__ == "__main__":
    unittest.main()
