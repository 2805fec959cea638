// What an application does with Vercel's AI SDK: objects, tools, streams. node vercel_ai.mjs http://127.0.0.1:PORT/v1
import assert from "node:assert";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, streamObject, streamText, tool } from "ai";
import { z } from "zod";

const provider = createOpenAICompatible({ name: "tern", baseURL: process.argv[2], apiKey: "x", supportsStructuredOutputs: true });
const common = { model: provider("default"), maxOutputTokens: 300, seed: 3 };
const schema = z.object({ kind: z.enum(["book", "pen"]), count: z.number().int().min(1).max(50), paid: z.boolean() });

schema.parse((await generateObject({ ...common, schema, prompt: "one" })).object);

const stream = streamObject({ ...common, schema, prompt: "one" });
for await (const part of stream.partialObjectStream) assert(part);
schema.parse(await stream.object);

const inputSchema = z.object({ a: z.enum(["1", "2"]), b: z.enum(["1", "2"]) });
const add = tool({ description: "adds", inputSchema, execute: async ({ a, b }) => Number(a) + Number(b) });
const forced = await generateText({ ...common, tools: { add }, toolChoice: "required", prompt: "add" });
assert.equal(forced.finishReason, "tool-calls");
assert(forced.toolResults[0].output >= 2);

const named = streamText({ ...common, tools: { add }, toolChoice: { type: "tool", toolName: "add" }, prompt: "add" });
for await (const part of named.fullStream) assert.notEqual(part.type, "error", String(part.error));
assert.deepEqual((await named.toolCalls).map((call) => call.toolName), ["add"]);
assert.equal(await named.finishReason, "tool-calls");
