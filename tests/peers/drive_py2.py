"""Drives the Python SDK 2.x `Client`; `--mode` is `auto`, `legacy` or a protocol version."""

import asyncio
import warnings

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning

import transcript

# Handshake-era verbs are driven on purpose.
warnings.simplefilter("ignore", MCPDeprecationWarning)


def plain(model):
    """A model as it stood on the wire: only what was set there, under its wire names."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Peer:
    """The 2.x client behind the verbs of `transcript`."""

    def __init__(self, client):
        self.client = client

    def session(self):
        client = self.client
        return {
            "version": client.protocol_version,
            "server": plain(client.server_info) if client.server_info else None,
            "capabilities": plain(client.server_capabilities),
            "instructions": client.instructions,
        }

    def error(self, error):
        if isinstance(error, MCPError):
            return plain(error.error)
        return {"kind": type(error).__name__, "text": str(error)}

    async def page(self, verb, cursor):
        name = "list_resource_templates" if verb == "templates" else "list_" + verb
        return plain(await getattr(self.client, name)(cursor=cursor))

    async def call(self, tool, arguments, on_progress):
        return plain(await self.client.call_tool(tool, arguments, progress_callback=on_progress))

    async def give_up(self, call):
        # The 2.x client tells the server by itself when the caller goes away.
        call.cancel()

    async def read(self, step):
        return plain(await self.client.read_resource(step["uri"]))

    async def prompt(self, step):
        return plain(await self.client.get_prompt(step["name"], step.get("arguments")))

    async def complete(self, step):
        kind = types.PromptReference if step["ref"]["type"] == "ref/prompt" else types.ResourceTemplateReference
        ref = kind.model_validate(step["ref"])
        return plain(await self.client.complete(ref, step["argument"], step.get("context")))

    async def log_level(self, step):
        return plain(await self.client.set_logging_level(step["level"]))

    async def subscribe(self, step):
        return plain(await self.client.subscribe_resource(step["uri"]))

    async def unsubscribe(self, step):
        return plain(await self.client.unsubscribe_resource(step["uri"]))

    async def listen(self, nudge):
        """Opens a stream, makes the server say something on it, closes it."""
        async with self.client.listen(tools_list_changed=True, prompts_list_changed=True) as stream:
            nudged = await nudge()
            event = await anext(aiter(stream))
            return {"honored": plain(stream.honored), "nudged": nudged, "event": type(event).__name__}

    async def ping(self, _step):
        return plain(await self.client.send_ping())


async def main():
    options = transcript.arguments()
    script = transcript.Transcript(options)

    async def sampling(_context, params):
        return types.CreateMessageResult.model_validate(script.asked("sampling/createMessage", plain(params)))

    async def elicitation(_context, params):
        return types.ElicitResult.model_validate(script.asked("elicitation/create", plain(params)))

    async def roots(_context):
        return types.ListRootsResult.model_validate(script.asked("roots/list", None))

    async def message(incoming):
        if isinstance(incoming, Exception):
            script.notified("unreadable", str(incoming))
        elif incoming.method != "notifications/progress":
            script.notified(incoming.method, plain(incoming.params) if incoming.params else None)

    server = StdioServerParameters(
        command=options.server[0], args=options.server[1:], env=transcript.environment()
    )
    client = Client(
        server,
        mode=options.mode,
        sampling_callback=sampling,
        elicitation_callback=elicitation,
        list_roots_callback=roots,
        message_handler=message,
        client_info=types.Implementation(name="peer", version="1"),
    )
    async with client:
        await transcript.drive(Peer(client), script)
    script.print()


asyncio.run(main())
