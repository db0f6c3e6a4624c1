// Calls models with OpenAI's SDK for Node, as a web client would. One JSON object a line in, one out.
//
//   {"do": "complete" | "stream" | "helper" | "parse" | "tools" | "break" | "abort" | "models",
//    "ask": members of the call, "retries": how often the SDK may try again}
//
// What comes out: what the SDK made of it, or {"error": {...}} as it raised it, and `sent`, the paths it really asked.
import { createInterface } from "node:readline";
import OpenAI from "openai";

const [, , base, token] = process.argv;
let sent = [];

function sdk(retries) {
  return new OpenAI({
    baseURL: `${base}/v1/llm`,
    apiKey: token,
    maxRetries: retries,
    timeout: 60_000,
    fetch: (url, init) => {
      sent.push(new URL(url.url ?? url).pathname);
      return fetch(url, init);
    },
  });
}

const does = {
  async complete(client, ask) {
    const answer = await client.chat.completions.create(ask);
    return { choice: answer.choices[0], usage: answer.usage };
  },

  async stream(client, ask) {
    let text = "";
    let usage = null;
    const choices = [];
    for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) {
      choices.push(chunk.choices.length);
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    return { text, usage, empty: choices.filter((length) => !length).length };
  },

  async helper(client, ask) {
    const runner = client.chat.completions.stream(ask);
    let text = "";
    runner.on("content", (piece) => {
      text += piece;
    });
    const answer = await runner.finalChatCompletion();
    return { text, choice: answer.choices[0] };
  },

  async parse(client, ask) {
    const answer = await client.chat.completions.parse(ask);
    return { parsed: answer.choices[0].message.parsed };
  },

  async tools(client, ask) {
    const runner = client.chat.completions.runTools({
      ...ask,
      tools: ask.tools.map((tool) => ({
        ...tool,
        function: { ...tool.function, function: () => "It is raining.", parse: JSON.parse },
      })),
    });
    return { text: await runner.finalContent(), messages: runner.messages.length };
  },

  async break(client, ask) {
    let chunks = 0;
    for await (const _ of await client.chat.completions.create({ ...ask, stream: true })) {
      chunks += 1;
      if (chunks === 5) break;
    }
    return { chunks };
  },

  async abort(client, ask) {
    const controller = new AbortController();
    const call = client.chat.completions.create(ask, { signal: controller.signal });
    setTimeout(() => controller.abort(), 300);
    await call;
    return {};
  },

  async models(client) {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    return { ids };
  },
};

function told(error) {
  const { status, code, type, param, message, constructor } = error;
  return { class: constructor.name, status, code, type, param, message };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { do: what, ask, retries } = JSON.parse(line);
  sent = [];
  const result = await does[what](sdk(retries ?? 0), ask).catch((error) => ({ error: told(error) }));
  process.stdout.write(`${JSON.stringify({ ...result, sent })}\n`);
}
