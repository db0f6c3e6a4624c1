// Calls models with Anthropic's SDK for Node. One JSON object a line in, one out.
//
//   {"do": "whole" | "stream" | "count", "ask": members of the call}
//
// What comes out: what the SDK made of it, or {"error": {...}} as it raised it.
import { createInterface } from "node:readline";
import Anthropic from "@anthropic-ai/sdk";

const [, , base, token] = process.argv;
const client = new Anthropic({ baseURL: `${base}/v1/llm`, apiKey: token, maxRetries: 0, timeout: 60_000 });

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
