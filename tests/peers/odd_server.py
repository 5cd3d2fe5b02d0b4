"""A legacy stdio server that answers as a call's arguments tell it to, oddities included.

The one idea: the record of a call has to commit to what the client got, in each way in which a call
can end, so this server ends them in each way. It uses no SDK: it writes the octets it wants.
"""

import json
import os
import sys


def answer(id_text, member):
    sys.stdout.write('{"jsonrpc":"2.0","id":%s,%s}\n' % (id_text, member))
    sys.stdout.flush()


def call(id_text, name, arguments):
    if name == "echo":
        text = json.dumps(arguments, ensure_ascii=False)
        answer(id_text, '"result":{"content":[{"type":"text","text":%s}]}' % json.dumps(text, ensure_ascii=False))
    elif name == "fails":
        answer(id_text, '"result":{"isError":true,"content":[{"type":"text","text":"it failed"}]}')
    elif name == "refuses":
        answer(id_text, '"error":{"code":-32602,"message":"no such thing","data":{"why":[1,2.50,null]}}')
    elif name == "odd":
        # Numbers and escapes in forms that a parser and writer would change.
        answer(id_text, '"result" : {"z":1E2,"a":-0.0,"big":9007199254740993,"s":"\\u00e9\\u2028\\/","content":[]}')
    elif name == "bare":
        answer(id_text, '"result":null')
    elif name == "crashes":
        os._exit(3)
    elif name == "silent":
        return
    else:
        answer(id_text, '"error":{"code":-32601,"message":"unknown tool"}')


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    id_text = json.dumps(message["id"])
    if message["method"] == "initialize":
        answer(
            id_text,
            '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
            '"serverInfo":{"name":"odd","version":"1"}}',
        )
    elif message["method"] == "tools/call":
        call(id_text, message["params"]["name"], message["params"].get("arguments"))
    else:
        answer(id_text, '"result":{}')
