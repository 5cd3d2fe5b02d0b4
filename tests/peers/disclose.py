"""Checks, with the reference's own functions, that a journal commits to what its client saw.

Given a journal and a transcript (one JSON object a line, `{"sent": LINE, "got": LINE}` for each call in
the order of sending), it rebuilds every payload from the transcript alone, as a stranger would, opens
it with the salts beside the journal and prints how many leaves matched. The first that does not match is a
line on stderr and exit 1.
"""

import hashlib
import json
import sys

import witness_log

PROFILE = "mcp.tools/call v1"


def digest(value):
    return hashlib.sha256(witness_log.canonical_json(value)).hexdigest()


def leaves_of(journal):
    with open(journal, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if "leaf_type" in line]


def salts_of(journal):
    with open(journal + ".salts", encoding="utf-8") as file:
        return {record["i"]: record["s"] for record in map(json.loads, file)}


def intent(server, sent):
    params = sent["params"]
    arguments = params.get("arguments")
    return {
        "profile": PROFILE,
        "server": server,
        "tool": params["name"],
        "args_sha256": digest({} if arguments is None else arguments),
    }


def result(server, sent, got, intent_index):
    outcome = {"error": got["error"]} if "error" in got else got.get("result")
    is_error = "error" in got or bool(isinstance(outcome, dict) and outcome.get("isError"))
    return {
        "profile": PROFILE,
        "server": server,
        "tool": sent["params"]["name"],
        "intent_index": intent_index,
        "result_sha256": digest(outcome),
        "is_error": is_error,
    }


def opens(leaf, salts, payload):
    return witness_log.verify_disclosure(leaf, witness_log.canonical_json(payload), salts[leaf["index"]])


def main():
    server, journal, transcript = sys.argv[1:]
    leaves, salts = leaves_of(journal), salts_of(journal)
    with open(transcript, encoding="utf-8") as file:
        calls = [(json.loads(call["sent"]), json.loads(call["got"])) for call in map(json.loads, file)]
    intents = [leaf for leaf in leaves if leaf["leaf_type"] == 1]
    results = [leaf for leaf in leaves if leaf["leaf_type"] == 2]
    if (len(intents), len(results)) != (len(calls), len(calls)):
        sys.exit(f"{len(calls)} calls, {len(intents)} intents, {len(results)} results")
    for (sent, got), leaf in zip(calls, intents):
        if not opens(leaf, salts, intent(server, sent)):
            sys.exit(f"intent {leaf['index']} does not commit to {sent}")
        # Answers may overtake each other, so a result is found by what it says.
        payload = result(server, sent, got, leaf["index"])
        found = next((one for one in results if opens(one, salts, payload)), None)
        if found is None:
            sys.exit(f"no result commits to {got} for intent {leaf['index']}")
        results.remove(found)
    print(2 * len(calls))


main()
