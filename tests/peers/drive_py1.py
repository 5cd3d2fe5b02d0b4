"""Drives the Python SDK 1.x `ClientSession`, which knows the handshake era only."""

import asyncio

import mcp.types as types
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client

import transcript


def plain(model):
    """A model as it stood on the wire: only what was set there, under its wire names."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Peer:
    """The 1.x session behind the verbs of `transcript`."""

    def __init__(self, client, opening):
        self.client = client
        self.opening = opening
        self.call_id = None

    def session(self):
        opening = plain(self.opening)
        return {
            "version": opening["protocolVersion"],
            "server": opening["serverInfo"],
            "capabilities": opening["capabilities"],
            "instructions": opening.get("instructions"),
        }

    def error(self, error):
        if isinstance(error, McpError):
            return plain(error.error)
        return {"kind": type(error).__name__, "text": str(error)}

    async def page(self, verb, cursor):
        name = "list_resource_templates" if verb == "templates" else "list_" + verb
        params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
        return plain(await getattr(self.client, name)(params=params))

    async def call(self, tool, arguments, on_progress):
        # The session hands out ids in sequence and does not tell them; a cancel needs this one.
        self.call_id = self.client._request_id
        return plain(await self.client.call_tool(tool, arguments, progress_callback=on_progress))

    async def give_up(self, _call):
        # 1.x leaves telling the server to its user.
        params = types.CancelledNotificationParams(requestId=self.call_id, reason="given up")
        await self.client.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))

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
        elif isinstance(incoming, types.ServerNotification) and incoming.root.method != "notifications/progress":
            params = incoming.root.params
            script.notified(incoming.root.method, plain(params) if params else None)

    server = StdioServerParameters(
        command=options.server[0], args=options.server[1:], env=transcript.environment()
    )
    async with stdio_client(server) as (read, write):
        session = ClientSession(
            read,
            write,
            sampling_callback=sampling,
            elicitation_callback=elicitation,
            list_roots_callback=roots,
            message_handler=message,
            client_info=types.Implementation(name="peer", version="1"),
        )
        async with session:
            await transcript.drive(Peer(session, await session.initialize()), script)
    script.print()


asyncio.run(main())
