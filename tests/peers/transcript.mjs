// What a TypeScript client saw of a server, as one normalised JSON document.
//
// The counterpart of transcript.py: the same scenarios, the same document, the same rules for values
// that differ between any two runs. Nothing here knows whether a proxy is in between, except
// `--without-audit`, which takes out the two tools that the proxy adds and reports on them separately.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const AUDIT_TOOLS = ["audit__status", "audit__export"];

// Stands between the transcript and what the proxy's two tools said, which is not normalised.
const AUDIT_MARK = "=== audit";

// No step of any scenario takes longer than the servers' own timers (a few seconds).
const STEP_MS_MAX = 40_000;

// A list that never ends is a fault of its own, not a reason to hang.
const PAGES_MAX = 20;

const VOLATILE = [
  [/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?/g, "<time>"],
  [/\b\d{1,2}:\d\d:\d\d [AP]M\b/g, "<time>"],
  [/\b[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d GMT[+-]\d{4}( \([^)]*\))?/g, "<time>"],
  [/\b(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b/g, "<weekday>"],
  [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g, "<uuid>"],
  [/\b[0-9a-f]{32}\b/g, "<task>"],
];

/** Loads packages from the folder that tests/peers/install fills. */
export const peers = createRequire(
  join(dirname(fileURLToPath(import.meta.url)), "..", "..", ".peers", "npm", "package.json"),
);

/** The command line that every driver takes: options, then `--`, then the server's command. */
export function options() {
  const { values, positionals } = parseArgs({
    options: {
      mode: { type: "string", default: "legacy" },
      scenario: { type: "string" },
      dir: { type: "string" },
      "without-audit": { type: "boolean", default: false },
    },
    allowPositionals: true,
  });
  return { ...values, server: positionals };
}

/** Everything that one client saw, in the order in which it saw it. */
export class Transcript {
  constructor({ scenario, dir, "without-audit": withoutAudit }) {
    const text = readFileSync(scenario, "utf8").replaceAll("{dir}", dir);
    this.steps = JSON.parse(text).steps;
    this.dir = dir;
    this.withoutAudit = withoutAudit;
    this.answers = [];
    this.calls = 0;
    this.listed = Object.fromEntries(AUDIT_TOOLS.map((name) => [name, 0]));
    this.audit = {};
    this.seen = { session: {}, steps: [], asked: [], notifications: {}, progress: {} };
    this.givenUp = new Set();
    this.givingUp = false;
  }

  /**
   * Notes progress as it comes in, by token. These SDKs lose a progress that arrives in one read with
   * its result, so their own callback cannot tell what the server sent. How much a server goes on
   * about a call that was given up is a matter of timing and is left out.
   */
  watch(transport) {
    const deliver = transport.onmessage;
    transport.onmessage = (message, extra) => {
      if (message.method === "notifications/progress") {
        const { progressToken: token, ...rest } = message.params;
        if (this.givingUp && !(token in this.seen.progress)) this.givenUp.add(token);
        if (!this.givenUp.has(token)) (this.seen.progress[token] ??= []).push(rest);
      }
      deliver(message, extra);
    };
  }

  /** Notes a request from the server to the client and returns the answer the scenario has for it. */
  asked(method, params) {
    this.seen.asked.push({ method, params });
    if (method === "roots/list") return { roots: [{ uri: `file://${this.dir}`, name: "work" }] };
    if (method === "sampling/createMessage") {
      return {
        role: "assistant",
        content: { type: "text", text: "sampled: Zürich 北京 \u2028" },
        model: "fixed-model",
        stopReason: "endTurn",
      };
    }
    return this.answers.shift() ?? { action: "cancel" };
  }

  /** Notes a notification; order is kept for each method apart, as clients do not keep it across. */
  notified({ method, params }) {
    (this.seen.notifications[method] ??= []).push(params ?? null);
  }

  /** Writes the document to stdout, and after a mark what the proxy's two tools said. */
  print() {
    this.seen.calls = this.calls;
    let text = JSON.stringify(this.seen, null, 1).replaceAll(this.dir, "{dir}");
    for (const [pattern, name] of VOLATILE) text = text.replace(pattern, name);
    process.stdout.write(`${text}\n`);
    if (this.withoutAudit) process.stdout.write(`${AUDIT_MARK}\n${JSON.stringify(this.audit)}\n`);
  }
}

/** An error as the client shows it, with the JSON-RPC members where it has them. */
export function errorOf(error) {
  return { kind: error?.constructor?.name, code: error?.code, text: error?.message, data: error?.data };
}

/** Runs each step of the scenario through `peer` and, if told so, asks the proxy's two tools. */
export async function drive(peer, transcript) {
  transcript.seen.session = peer.session();
  for (const step of transcript.steps) {
    transcript.answers = [...(step.answers ?? [])];
    const outcome = await within(STEP_MS_MAX, takeStep(peer, transcript, step)).catch((error) => ({
      error: errorOf(error),
    }));
    transcript.seen.steps.push({ step, outcome });
  }
  if (!transcript.withoutAudit) return;
  transcript.audit.listed = transcript.listed;
  for (const name of AUDIT_TOOLS) {
    transcript.audit[name] = await peer.call(name, {}, {}).catch((error) => ({ error: errorOf(error) }));
  }
}

function within(ms, work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("the step took too long")), ms);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

async function takeStep(peer, transcript, step) {
  switch (step.do) {
    case "settle":
      return new Promise((resolve) => setTimeout(() => resolve(null), step.ms));
    case "tools":
    case "resources":
    case "templates":
    case "prompts":
      return pages(peer, transcript, step.do);
    case "call":
      return call(peer, transcript, step);
    case "calls":
      // All at once: the answers may come in any order, each to its own caller.
      return Promise.all(step.of.map((one) => call(peer, transcript, one)));
    case "cancel":
      return cancel(peer, transcript, step);
    case "listen":
      return peer.listen(() => call(peer, transcript, step.nudge));
    default:
      return peer[step.do](step);
  }
}

async function pages(peer, transcript, verb) {
  const seen = [];
  let cursor;
  for (let count = 0; count < PAGES_MAX; count += 1) {
    const page = { ...(await peer.page(verb, cursor)) };
    if (verb === "tools" && transcript.withoutAudit) {
      for (const tool of page.tools) if (tool.name in transcript.listed) transcript.listed[tool.name] += 1;
      page.tools = page.tools.filter((tool) => !(tool.name in transcript.listed));
    }
    seen.push(page);
    cursor = page.nextCursor;
    if (cursor === undefined) break;
  }
  return seen;
}

async function call(peer, transcript, step) {
  // In the modern era a call that is asked back is sent again, with the answers: one more call each time.
  transcript.calls += step.rounds ?? 1;
  // The token goes out only when somebody listens; what arrives is noted by `watch`.
  const settings = step.progress ? { onprogress: () => {} } : {};
  return peer.call(step.tool, step.arguments, settings).then(
    (result) => ({ result }),
    (error) => ({ error: errorOf(error) }),
  );
}

/** Gives a call up at its first progress; says whether an answer came all the same. */
async function cancel(peer, transcript, step) {
  const abort = new AbortController();
  transcript.calls += 1;
  transcript.givingUp = true;
  const settings = { signal: abort.signal, onprogress: () => abort.abort("given up") };
  const outcome = await peer.call(step.tool, step.arguments, settings).then(
    (result) => ({ answered: result }),
    (error) => ({ cancelled: errorOf(error) }),
  );
  // Time for a wrong late answer to arrive and be noticed.
  await new Promise((resolve) => setTimeout(resolve, step.ms ?? 500));
  transcript.givingUp = false;
  return outcome;
}
