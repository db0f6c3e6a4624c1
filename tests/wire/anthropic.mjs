// Calls models with Anthropic's SDK for Node. One JSON object a line in, one out.
//
//   {"do": "whole" | "stream" | "count" | "tools" | "models", "ask": members of the call}
//
// What comes out: what the SDK made of it, or {"error": {...}} as it raised it.
import { createInterface } from "node:readline";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const [, , base, token] = process.argv;
const client = new Anthropic({ baseURL: `${base}/v1/llm`, apiKey: token, maxRetries: 0, timeout: 60_000 });

const weather = betaTool({
  name: "weather",
  description: "The weather of a city.",
  inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  run: ({ city }) => `It rains in ${city}.`,
});

const does = {
  whole: async (ask) => ({ message: await client.messages.create(ask) }),

  async stream(ask) {
    let text = "";
    const stream = client.messages.stream(ask).on("text", (piece) => {
      text += piece;
    });
    const message = await stream.finalMessage();
    return { text, message };
  },

  // As the SDK loops by default: with a thread that the server would keep.
  tools: async (ask) => ({ message: await client.beta.messages.toolRunner({ ...ask, tools: [weather] }) }),

  async models() {
    const models = [];
    for await (const model of client.models.list()) models.push((await client.models.retrieve(model.id)).id);
    return { models };
  },

  count: async (ask) => ({ count: await client.messages.countTokens(ask) }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: what, ask } = JSON.parse(line);
  let answer;
  try {
    answer = await does[what](ask);
  } catch (error) {
    answer = { error: { name: error.constructor.name, status: error.status, type: error.type, body: error.error } };
  }
  console.log(JSON.stringify(answer));
}
