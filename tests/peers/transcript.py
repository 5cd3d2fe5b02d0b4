"""What a Python client saw of a server, as one normalised JSON document.

The one idea: a scenario is data, a client is an adapter with a few verbs, and the same scenario
driven directly and through a proxy must print the same document. Values that differ between any
two runs (times, random ids, the run's own folder) are replaced here and nowhere else. Nothing here
knows whether a proxy is in between, except `--without-audit`, which takes out the two tools that the
proxy adds and reports on them separately.
"""

import argparse
import asyncio
import json
import os
import re
import sys

AUDIT_TOOLS = ("audit__status", "audit__export")

# Stands between the transcript and what the proxy's two tools said, which is not normalised.
AUDIT_MARK = "=== audit"

# No step of any scenario takes longer than the servers' own timers (a few seconds).
STEP_SECONDS_MAX = 40

# A list that never ends is a fault of its own, not a reason to hang.
PAGES_MAX = 20

VOLATILE = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b\d{1,2}:\d\d:\d\d [AP]M\b"), "<time>"),
    (re.compile(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d GMT[+-]\d{4}( \([^)]*\))?"), "<time>"),
    (re.compile(r"\b(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"), "<weekday>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<task>"),
]


def arguments():
    """The command line that every driver takes: options, then `--`, then the server's command."""
    parser = argparse.ArgumentParser(description="drive one MCP client through one scenario")
    parser.add_argument("--mode", default="legacy", help="how the client negotiates")
    parser.add_argument("--scenario", required=True, help="a file of tests/peers/scenarios")
    parser.add_argument("--dir", required=True, help="the folder that {dir} stands for in the scenario")
    parser.add_argument("--without-audit", action="store_true", help="expect the proxy's two tools and set them apart")
    parser.add_argument("server", nargs="+", help="the server's command, after --")
    return parser.parse_args()


class Transcript:
    """Everything that one client saw, in the order in which it saw it."""

    def __init__(self, options):
        with open(options.scenario, encoding="utf-8") as file:
            self.steps = self._placed(json.load(file)["steps"], options.dir)
        self.dir = options.dir
        self.without_audit = options.without_audit
        self.answers = []
        self.calls = 0
        self.listed = {name: 0 for name in AUDIT_TOOLS}
        self.audit = {}
        self.seen = {"session": {}, "steps": [], "asked": [], "notifications": {}}

    def _placed(self, value, directory):
        return json.loads(json.dumps(value).replace("{dir}", directory))

    def asked(self, method, params):
        """Notes a request from the server to the client and returns the answer the scenario has for it."""
        self.seen["asked"].append({"method": method, "params": params})
        if method == "roots/list":
            return {"roots": [{"uri": "file://" + self.dir, "name": "work"}]}
        if method == "sampling/createMessage":
            return {
                "role": "assistant",
                "content": {"type": "text", "text": "sampled: Zürich 北京 \u2028"},
                "model": "fixed-model",
                "stopReason": "endTurn",
            }
        return self.answers.pop(0) if self.answers else {"action": "cancel"}

    def notified(self, method, params):
        """Notes a notification; order is kept for each method apart, as clients do not keep it across."""
        self.seen["notifications"].setdefault(method, []).append(params)

    def print(self):
        """Writes the document to stdout, and after a mark what the proxy's two tools said."""
        self.seen["calls"] = self.calls
        text = json.dumps(self.seen, ensure_ascii=False, indent=1, sort_keys=True)
        text = text.replace(self.dir, "{dir}")
        for pattern, name in VOLATILE:
            text = pattern.sub(name, text)
        sys.stdout.write(text + "\n")
        if self.without_audit:
            sys.stdout.write(AUDIT_MARK + "\n" + json.dumps(self.audit, ensure_ascii=False) + "\n")


async def drive(peer, transcript):
    """Runs each step of the scenario through `peer` and, if told so, asks the proxy's two tools."""
    transcript.seen["session"] = peer.session()
    for step in transcript.steps:
        transcript.answers = list(step.get("answers", []))
        try:
            outcome = await asyncio.wait_for(_step(peer, transcript, step), STEP_SECONDS_MAX)
        except Exception as error:  # noqa: BLE001 the transcript is where errors belong
            outcome = {"error": peer.error(error)}
        transcript.seen["steps"].append({"step": step, "outcome": outcome})
    if transcript.without_audit:
        transcript.audit["listed"] = transcript.listed
        for name in AUDIT_TOOLS:
            try:
                transcript.audit[name] = await peer.call(name, {}, None)
            except Exception as error:  # noqa: BLE001
                transcript.audit[name] = {"error": peer.error(error)}


async def _step(peer, transcript, step):
    verb = step["do"]
    if verb == "settle":
        return await asyncio.sleep(step["ms"] / 1000)
    if verb in ("tools", "resources", "templates", "prompts"):
        return await _pages(peer, transcript, verb)
    if verb == "call":
        return await _call(peer, transcript, step)
    if verb == "calls":
        # All at once: the answers may come in any order, each to its own caller.
        return await asyncio.gather(*(_call(peer, transcript, one) for one in step["of"]))
    if verb == "cancel":
        return await _cancel(peer, transcript, step)
    if verb == "listen":
        return await peer.listen(lambda: _call(peer, transcript, step["nudge"]))
    return await getattr(peer, verb)(step)


async def _pages(peer, transcript, verb):
    pages, cursor = [], None
    for _ in range(PAGES_MAX):
        page = await peer.page(verb, cursor)
        if verb == "tools" and transcript.without_audit:
            for tool in page["tools"]:
                if tool["name"] in AUDIT_TOOLS:
                    transcript.listed[tool["name"]] += 1
            page["tools"] = [tool for tool in page["tools"] if tool["name"] not in AUDIT_TOOLS]
        pages.append(page)
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    return pages


async def _call(peer, transcript, step):
    progress = []

    async def on_progress(done, total, message):
        progress.append([done, total, message])

    # In the modern era a call that is asked back is sent again, with the answers: one more call each time.
    transcript.calls += step.get("rounds", 1)
    wants_progress = step.get("progress", False)
    try:
        result = await peer.call(step["tool"], step.get("arguments"), on_progress if wants_progress else None)
        outcome = {"result": result}
    except Exception as error:  # noqa: BLE001
        outcome = {"error": peer.error(error)}
    if wants_progress:
        outcome["progress"] = progress
    return outcome


async def _cancel(peer, transcript, step):
    """Gives a call up at its first progress; says whether an answer came all the same."""
    started = asyncio.Event()

    async def on_progress(_done, _total, _message):
        started.set()

    transcript.calls += 1
    call = asyncio.ensure_future(peer.call(step["tool"], step.get("arguments"), on_progress))
    await started.wait()
    await peer.give_up(call)
    # Time for a wrong late answer to arrive and be noticed.
    await asyncio.sleep(step.get("ms", 500) / 1000)
    if not call.done():
        call.cancel()
        await asyncio.wait([call])
        return {"cancelled": True}
    if call.cancelled():
        return {"cancelled": True}
    error = call.exception()
    return {"answered": peer.error(error) if error else call.result()}


def environment():
    """All of ours: a server behind a proxy must see the same as one started directly."""
    return dict(os.environ)
