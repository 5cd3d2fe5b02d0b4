// Drives the TypeScript SDK 1.x `Client`, which knows the handshake era only.

import { drive, options, peers, Transcript } from "./transcript.mjs";

const { Client } = peers("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = peers("@modelcontextprotocol/sdk/client/stdio.js");
const types = peers("@modelcontextprotocol/sdk/types.js");

const given = options();
const transcript = new Transcript(given);
const client = new Client(
  { name: "peer", version: "1" },
  { capabilities: { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } } },
);
client.setRequestHandler(types.CreateMessageRequestSchema, ({ method, params }) => transcript.asked(method, params));
client.setRequestHandler(types.ElicitRequestSchema, ({ method, params }) => transcript.asked(method, params));
client.setRequestHandler(types.ListRootsRequestSchema, ({ method }) => transcript.asked(method, null));
client.fallbackNotificationHandler = async (notification) => transcript.notified(notification);

const transport = new StdioClientTransport({
  command: given.server[0],
  args: given.server.slice(1),
  env: { ...process.env },
});
let version;
transport.setProtocolVersion = (agreed) => {
  version = agreed;
};

const peer = {
  session: () => ({
    version,
    server: client.getServerVersion(),
    capabilities: client.getServerCapabilities(),
    instructions: client.getInstructions(),
  }),
  page(verb, cursor) {
    const params = cursor === undefined ? undefined : { cursor };
    if (verb === "tools") return client.listTools(params);
    if (verb === "resources") return client.listResources(params);
    if (verb === "templates") return client.listResourceTemplates(params);
    return client.listPrompts(params);
  },
  call: (name, args, settings) => client.callTool({ name, arguments: args }, undefined, settings),
  read: ({ uri }) => client.readResource({ uri }),
  prompt: ({ name, arguments: args }) => client.getPrompt({ name, arguments: args }),
  complete: ({ ref, argument, context }) =>
    client.complete({ ref, argument, ...(context ? { context: { arguments: context } } : {}) }),
  log_level: ({ level }) => client.setLoggingLevel(level),
  subscribe: ({ uri }) => client.subscribeResource({ uri }),
  unsubscribe: ({ uri }) => client.unsubscribeResource({ uri }),
  ping: () => client.ping(),
  // A call as a task: the result arrives by tasks/get and tasks/result.
  async task({ tool, arguments: args }) {
    transcript.calls += 1;
    const seen = [];
    for await (const message of client.experimental.tasks.callToolStream(
      { name: tool, arguments: args },
      types.CallToolResultSchema,
      { task: { ttl: 60_000 } },
    )) {
      // How often the client polls is a matter of timing; the first and the last messages are not.
      if (message.type !== "taskStatus") seen.push(message);
    }
    return seen;
  },
};

await client.connect(transport);
transcript.watch(transport);
await drive(peer, transcript);
await client.close();
transcript.print();
