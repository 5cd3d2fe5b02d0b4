"""Goes on with a journal by the reference's library: opens it, appends one pair, closes it.

Prints the tree's size and root before and after as one JSON object.
"""

import json
import sys

import witness_log


def head(log):
    return {"size": log.tree_size(), "root": log.root_hex()}


def main():
    journal, seed = sys.argv[1], bytes.fromhex(sys.argv[2])
    log = witness_log.open(journal, identity_seed=seed)
    before = head(log)
    index = log.append_intent(witness_log.canonical_json({"by": "the reference"}))
    log.append_result(witness_log.canonical_json({"by": "the reference", "intent_index": index}))
    after = head(log)
    log.close()
    print(json.dumps({"before": before, "after": after}))


main()
