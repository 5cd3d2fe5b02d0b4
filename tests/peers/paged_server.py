"""A server of both eras with what the published ones lack: pages, asking back, subscriptions.

The one idea: in the modern era a server asks by answering `input_required`, and speaks unasked only on a
stream that the client opened; no published server does either on stdio. Lists come one entry a
page, with cursors that need their exact text back.
"""

import asyncio

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

ANY = {"type": "object"}
FORM = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
TOOLS = [
    types.Tool(name="count", description="Counts up, slowly, with progress", input_schema=ANY),
    types.Tool(name="ask", description="Asks the user for a colour", input_schema=ANY),
    types.Tool(name="nudge", description="Says that the tools changed", input_schema=ANY),
    types.Tool(name="large", description="Answers with many octets", input_schema=ANY),
]
PROMPTS = [types.Prompt(name="one"), types.Prompt(name="two")]

bus = InMemorySubscriptionBus()


def page(entries, params):
    """One entry, and the cursor of the next: a text that JSON has to escape."""
    cursor = params.cursor if params else None
    at = 0 if cursor is None else int(cursor.rsplit("\u2028", 1)[1])
    following = f'"page"\u2028{at + 1}' if at + 1 < len(entries) else None
    return [entries[at]], following


async def list_tools(_context, params):
    tools, cursor = page(TOOLS, params)
    return types.ListToolsResult(tools=tools, next_cursor=cursor)


async def list_prompts(_context, params):
    prompts, cursor = page(PROMPTS, params)
    return types.ListPromptsResult(prompts=prompts, next_cursor=cursor)


def said(text):
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def call_tool(context, params):
    arguments = params.arguments or {}
    if params.name == "count":
        steps = arguments["steps"]
        for step in range(1, steps + 1):
            await asyncio.sleep(0.1)
            await context.session.report_progress(step, steps, f"Schritt {step} für dich")
        return said(f"counted to {steps}")
    if params.name == "ask":
        return await ask(context, params)
    if params.name == "nudge":
        await bus.publish(ToolsListChanged())
        return said("nudged")
    if params.name == "large":
        return said("ü" * arguments["characters"])
    raise ValueError(f"no tool {params.name}")


async def ask(context, params):
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        answer = await context.session.elicit_form("Which colour?", FORM, context.request_id)
        return said(f"{answer.action}: {answer.content}")
    if params.input_responses is None:
        form = types.ElicitRequestFormParams(message="Which colour?", requested_schema=FORM)
        return types.InputRequiredResult(
            input_requests={"colour": types.ElicitRequest(params=form)},
            request_state='opaque "state" \u2028 é',
        )
    answer = params.input_responses["colour"]
    return said(f"{answer.action}: {answer.content} with {params.request_state}")


async def main():
    server = Server(
        "paged",
        version="1",
        instructions="Lists come one entry a page.",
        on_list_tools=list_tools,
        on_list_prompts=list_prompts,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(bus),
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
