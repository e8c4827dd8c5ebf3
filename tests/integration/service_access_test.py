# SPDX-License-Identifier: Apache-2.0
"""Who may ask: the budget of a client's own address.

Usage: service_access_test.py PROGRAM
"""

import support
from support import target

CHECK = "/api/v1/rate-limit/check"
REMAINING = "/api/v1/rate-limit/remaining"
RESET = "/api/v1/rate-limit/reset"
OWN = "127.0.0.1"


class OwnBudget(support.ServiceTest):
    """What is kept for the address of a client is not what is kept for a key of that name."""

    def exercise(self, service):
        def left(**parameters):
            answer = service.get(target(REMAINING, algorithm="FIXED_WINDOW", **parameters))
            return answer.json["remaining"]

        def check(**parameters):
            return service.get(target(CHECK, algorithm="FIXED_WINDOW", **parameters))

        def reset(**parameters):
            return service.request("DELETE", target(RESET, algorithm="FIXED_WINDOW", **parameters))

        for _ in range(3):
            self.assertEqual(check().json["key"], OWN)
        self.assertEqual((left(), left(key=OWN)), (7, 10))
        # Nobody can use it up, nor make it whole, by its name.
        self.assertEqual(check(key=OWN, permits=10).status, 200)
        self.assertEqual(check(key=OWN).status, 429)
        self.assertEqual((left(), left(key=OWN)), (7, 0))
        self.assertEqual(check().status, 200)
        self.assertEqual(reset(key=OWN).status, 200)
        self.assertEqual((left(), left(key=OWN)), (6, 10))
        self.assertEqual(check(permits=6).status, 200)
        self.assertEqual(check().status, 429)
        self.assertEqual(check(key=OWN).status, 200)
        # Its owner can.
        self.assertEqual(reset().json["key"], OWN)
        self.assertEqual(left(), 10)

    def test_is_apart_in_memory(self):
        config = self.folder().write("a.yaml", f"defaults: {{fixed_window: "
                                               f"'limit=10,window={support.AGES}'}}")
        self.exercise(self.start("--config", config))

    def test_is_apart_in_redis(self):
        config = self.folder().write("a.yaml", f"defaults: {{fixed_window: "
                                               f"'limit=10,window={support.AGES}'}}")
        redis = self.redis()
        self.exercise(self.start("--config", config, "--store", f"redis://127.0.0.1:{redis.port}"))


if __name__ == "__main__":
    support.main()
