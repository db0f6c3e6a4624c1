// Calls models with Vercel's AI SDK as it is by default, which asks the Responses API. One JSON object a line in, one out.
//
//   {"do": "whole" | "stream" | "tools" | "streamed tools" | "talk" | "object" | "output" | "embed" | "embed many",
//    "ask": members of the call, "model": its name, "store": what the provider's option says}
//
// What comes out: what the SDK made of it, or {"error": {...}} as it raised it, and `sent`, the paths it really asked.
import { createInterface } from "node:readline";
import { createOpenAI } from "@ai-sdk/openai";
import { embed, embedMany, generateObject, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [, , base, token] = process.argv;
let sent = [];
const openai = createOpenAI({
  baseURL: `${base}/v1/llm`,
  apiKey: token,
  fetch: (url, init) => {
    sent.push(new URL(url.url ?? url).pathname);
    return fetch(url, init);
  },
});
const place = z.object({ city: z.string() });
const weather = tool({ description: "The weather", inputSchema: place, execute: () => "It is raining." });
const withTools = { tools: { weather }, stopWhen: stepCountIs(3) };

async function streamed(options) {
  let failure = null;
  const result = streamText({ ...options, onError: ({ error }) => (failure = error) });
  let text = "";
  for await (const piece of result.textStream) text += piece;
  if (failure) throw failure;
  return { text, usage: await result.totalUsage, steps: (await result.steps).length };
}

async function whole(options) {
  const { text, totalUsage, steps } = await generateText(options);
  return { text, usage: totalUsage, steps: steps.length };
}

const does = {
  whole,
  stream: streamed,
  tools: (options) => whole({ ...options, ...withTools }),
  "streamed tools": (options) => streamed({ ...options, ...withTools }),
  async talk({ prompt, ...options }) {
    const asked = { role: "user", content: prompt };
    const { responseMessages } = await generateText({ ...options, ...withTools, messages: [asked] });
    return whole({ ...options, messages: [asked, ...responseMessages, { role: "user", content: "Thanks" }] });
  },
  async object(options) {
    const { object } = await generateObject({ ...options, schema: place });
    return { object };
  },
  async output(options) {
    const { output } = await generateText({ ...options, output: Output.object({ schema: place }) });
    return { object: output };
  },
  embed: ({ model, ...options }) => embed({ ...options, model: openai.embedding(model.modelId) }),
  "embed many": ({ model, ...options }) => embedMany({ ...options, model: openai.embedding(model.modelId) }),
};

function told(error) {
  const { name, statusCode, message } = error;
  return { name, status: statusCode, message };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { do: what, ask, model, store } = JSON.parse(line);
  sent = [];
  const options = { model: openai(model), maxRetries: 0, providerOptions: { openai: { store } }, ...ask };
  const result = await does[what](options).catch((error) => ({ error: told(error) }));
  process.stdout.write(`${JSON.stringify({ ...result, sent })}\n`);
}
