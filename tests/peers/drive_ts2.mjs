// Drives the TypeScript client 2.x; `--mode` is `legacy`, `auto` or a protocol version to pin.

import { drive, options, peers, Transcript } from "./transcript.mjs";

const { Client } = peers("@modelcontextprotocol/client");
const { StdioClientTransport } = peers("@modelcontextprotocol/client/stdio");

const given = options();
const transcript = new Transcript(given);
const mode = ["legacy", "auto"].includes(given.mode) ? given.mode : { pin: given.mode };
const client = new Client(
  { name: "peer", version: "1" },
  {
    capabilities: { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } },
    versionNegotiation: { mode },
  },
);
client.setRequestHandler("sampling/createMessage", ({ method, params }) => transcript.asked(method, params));
client.setRequestHandler("elicitation/create", ({ method, params }) => transcript.asked(method, params));
client.setRequestHandler("roots/list", ({ method }) => transcript.asked(method, null));
client.fallbackNotificationHandler = async (notification) => transcript.notified(notification);

const transport = new StdioClientTransport({
  command: given.server[0],
  args: given.server.slice(1),
  env: { ...process.env },
});

const peer = {
  session: () => ({
    version: client.getNegotiatedProtocolVersion(),
    server: client.getServerVersion(),
    capabilities: client.getServerCapabilities(),
    instructions: client.getInstructions(),
  }),
  page(verb, cursor) {
    // Without a cursor this client walks the pages by itself.
    const params = cursor === undefined ? undefined : { cursor };
    if (verb === "tools") return client.listTools(params);
    if (verb === "resources") return client.listResources(params);
    if (verb === "templates") return client.listResourceTemplates(params);
    return client.listPrompts(params);
  },
  call: (name, args, settings) => client.callTool({ name, arguments: args }, settings),
  read: ({ uri }) => client.readResource({ uri }),
  prompt: ({ name, arguments: args }) => client.getPrompt({ name, arguments: args }),
  complete: ({ ref, argument, context }) =>
    client.complete({ ref, argument, ...(context ? { context: { arguments: context } } : {}) }),
  log_level: ({ level }) => client.setLoggingLevel(level),
  subscribe: ({ uri }) => client.subscribeResource({ uri }),
  unsubscribe: ({ uri }) => client.unsubscribeResource({ uri }),
  ping: () => client.ping(),
  // Opens a stream, makes the server say something on it, closes it.
  async listen(nudge) {
    const stream = await client.listen({ toolsListChanged: true, promptsListChanged: true });
    const nudged = await nudge();
    // The event arrives as a notification, which may be after the answer.
    await new Promise((resolve) => setTimeout(resolve, 300));
    await stream.close();
    return { honored: stream.honoredFilter, nudged, closed: await stream.closed };
  },
};

await client.connect(transport);
transcript.watch(transport);
await drive(peer, transcript);
await client.close();
transcript.print();
