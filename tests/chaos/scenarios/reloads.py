# SPDX-License-Identifier: Apache-2.0
"""Rules change all the time, and half of the changes are wrong."""

import json

from harness import Quota, rule_set, scenario
from load import subjects
from support import eventually

LIMIT = Quota(capacity=20)

# Various mistakes; the number makes each file different.
MISTAKES = (
    lambda number: json.dumps({"ruleSets": [], f"number-{number}": []}),
    lambda number: json.dumps({"ruleSets": [{"id": "quota", "rules": number}]}),
    lambda number: json.dumps({"ruleSets": [rule_set("quota", LIMIT, on_store_failure="SHRUG"),
                                            rule_set("other", Quota(capacity=number + 1))]}),
    lambda number: f"ruleSets: [  # {number}",
)


@scenario("reloads", "of 100 reloads, half invalid: nothing dropped, old rules stay, all counted")
def reloads(trial):
    folder = trial.folder()
    service = trial.service_of(folder.write("rules.yaml", rules(marker=1)))
    load = trial.load([service], subjects("quota", 10), rate=trial.length(1000, 300))
    counted = {result: reloads_counted(service, result) for result in ("ok", "invalid")}
    orders = ["ok", "invalid"] * trial.length(50, 10)
    trial.random.shuffle(orders)
    marker = 1
    for number, order in enumerate(orders):
        if order == "ok":
            marker += 1
            folder.replace("rules.yaml", rules(marker))
        else:
            folder.replace("rules.yaml", trial.random.choice(MISTAKES)(number))
        counted[order] += 1
        eventually(lambda order=order: reloads_counted(service, order) >= counted[order],
                   f"reload {number} is counted as {order}")
        trial.expect(limit_of_marker(service) == marker, f"not the rules of change {marker}")
    records = load.stop()
    trial.expect_answers(load, records)
    trial.expect_bounded(records, LIMIT)
    for result, count in counted.items():
        seen = reloads_counted(service, result)
        trial.measure(f"reloads {result}", f"{seen:.0f}")
        trial.expect(seen == count, f"{seen:.0f} reloads counted as {result}, not {count}")


def reloads_counted(service, result):
    return service.metric("sluice_reloads_total", result=result)


def rules(marker):
    return json.dumps({"ruleSets": [rule_set("quota", LIMIT),
                                    rule_set("marker", Quota(capacity=marker))]})


def limit_of_marker(service):
    return service.check("marker", permits=0, userId="u").json["limit"]
