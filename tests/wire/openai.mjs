// Calls models with OpenAI's SDK for Node, as a web client would. One JSON object a line in, one out.
//
//   {"do": "complete" | "stream" | "helper" | "parse" | "tools" | "break" | "abort" |
//           "respond" | "respond stream" | "respond parse" | "respond tools" | "respond abort" |
//           "embed" | "models" | "model",
//    "ask": members of the call, "retries": how often the SDK may try again}
//
// What comes out: what the SDK made of it, or {"error": {...}} as it raised it, and `sent`, the paths it really asked.
import { createInterface } from "node:readline";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

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
    // The request has reached the provider by then, also on a machine with much else to do.
    setTimeout(() => controller.abort(), 3_000);
    await call;
    return {};
  },

  async respond(client, ask) {
    const { output_text: text, status, usage } = await client.responses.create(ask);
    return { text, status, usage };
  },

  async "respond stream"(client, ask) {
    let text = "";
    const stream = client.responses.stream(ask).on("response.output_text.delta", ({ delta }) => {
      text += delta;
    });
    const { output_text, status, usage } = await stream.finalResponse();
    return { text, whole: output_text, status, usage };
  },

  async "respond parse"(client, ask) {
    const format = zodTextFormat(z.object({ city: z.string() }), "place");
    const answer = await client.responses.parse({ ...ask, text: { format } });
    return { parsed: answer.output_parsed };
  },

  // Everything that was said goes back, as nothing is stored.
  async "respond tools"(client, { stream, ...ask }) {
    const input = [{ role: "user", content: ask.input }];
    const asked = { ...ask, input, store: false };
    const { output } = stream
      ? await client.responses.stream(asked).finalResponse()
      : await client.responses.create(asked);
    for (const { call_id } of output.filter((item) => item.type === "function_call")) {
      input.push({ type: "function_call_output", call_id, output: "It is raining." });
    }
    const answer = await client.responses.create({ ...asked, input: [input[0], ...output, ...input.slice(1)] });
    return { text: answer.output_text, calls: output };
  },

  async "respond abort"(client, ask) {
    const controller = new AbortController();
    let text = "";
    const stream = await client.responses.create({ ...ask, stream: true }, { signal: controller.signal });
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") text += event.delta;
      if (text.length > 100) controller.abort();
    }
    return { text };
  },

  async embed(client, ask) {
    const { data, usage } = await client.embeddings.create(ask);
    return { vectors: data.map(({ embedding }) => embedding), usage };
  },

  async model(client, ask) {
    return { model: await client.models.retrieve(ask.model) };
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
