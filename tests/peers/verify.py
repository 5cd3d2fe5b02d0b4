"""Prints the verdict of the reference's library on a dossier."""

import json
import sys

import witness_log

with open(sys.argv[1], encoding="utf-8") as file:
    report = witness_log.verify_dossier_json(file.read(), 0.66, expected_identity_pubkey=sys.argv[2])
print(json.loads(report)["verdict"])
