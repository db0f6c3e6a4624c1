// Calls models from a page of another origin, as a shell's webview does. `tests/served/test_webviews.py` bundles it.
//
// The page's query gives `base` and `token`. `window.results` is there once all calls have ended: for each the text that
// its SDK made of the answer, or {"error": "..."}.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const { base, token } = Object.fromEntries(new URLSearchParams(location.search));
const baseURL = `${base}/v1/llm`;
const apiKey = token;
const model = "stand-in-small";
const prompt = "What is a haiku?";
const messages = [{ role: "user", content: prompt }];
const inBrowser = { dangerouslyAllowBrowser: true, maxRetries: 0 };

const openai = new OpenAI({ baseURL, apiKey, organization: "acme", project: "shell", ...inBrowser });
const anthropic = new Anthropic({ baseURL, apiKey, ...inBrowser });
const compatible = createOpenAICompatible({ name: "shell", baseURL, apiKey, includeUsage: true });
const vercel = createOpenAI({ baseURL, apiKey });
const stateless = { openai: { store: false } };
const chain = new ChatOpenAI({ model, apiKey, configuration: { baseURL }, maxRetries: 0 });

const calls = {
  async "openai whole"() {
    const { data, response } = await openai.chat.completions.create({ model, messages }).withResponse();
    const left = response.headers.get("x-tokens-remaining-day");
    return { text: data.choices[0].message.content, left };
  },

  async "openai stream"() {
    let text = "";
    const traceparent = `00-${"1".repeat(32)}-${"2".repeat(16)}-01`;
    const options = { headers: { "Idempotency-Key": "one-key-of-a-call", traceparent } };
    for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true }, options)) {
      text += chunk.choices[0]?.delta.content ?? "";
    }
    return { text };
  },

  async "openai helper"() {
    return { text: await openai.chat.completions.stream({ model, messages }).finalContent() };
  },

  async "openai models"() {
    const ids = [];
    for await (const { id } of openai.models.list()) ids.push(id);
    return { text: ids.join() };
  },

  async "ai compatible whole"() {
    const { text } = await generateText({ model: compatible(model), prompt, maxRetries: 0 });
    return { text };
  },

  async "ai compatible stream"() {
    const { textStream } = streamText({ model: compatible(model), prompt, maxRetries: 0, onError: thrown });
    return { text: await joined(textStream) };
  },

  async "ai openai stream"() {
    const { textStream } = streamText({ model: vercel.chat(model), prompt, maxRetries: 0, onError: thrown });
    return { text: await joined(textStream) };
  },

  // By itself it asks the Responses API.
  async "ai responses whole"() {
    const { text } = await generateText({ model: vercel(model), prompt, providerOptions: stateless, maxRetries: 0 });
    return { text };
  },

  async "ai responses stream"() {
    const asked = { model: vercel(model), prompt, providerOptions: stateless, maxRetries: 0 };
    const { textStream } = streamText({ ...asked, onError: thrown });
    return { text: await joined(textStream) };
  },

  async "langchain whole"() {
    return { text: (await chain.invoke(prompt)).text };
  },

  async "langchain stream"() {
    let text = "";
    for await (const chunk of await chain.stream(prompt)) text += chunk.text;
    return { text };
  },

  async "anthropic whole"() {
    const answer = await anthropic.messages.create({ model, messages, max_tokens: 100 });
    return { text: answer.content[0].text };
  },

  async "anthropic stream"() {
    return { text: await anthropic.messages.stream({ model, messages, max_tokens: 100 }).finalText() };
  },

  async "a refusal"() {
    const refused = await openai.chat.completions.create({ model, messages, temperature: 3 }).catch((error) => error);
    return { text: refused.code };
  },

  async health() {
    const [health, alive] = await Promise.all([fetch(`${base}/healthz`), fetch(`${base}/livez`)]);
    return { text: `${health.status} ${(await health.json()).status} ${alive.status}` };
  },
};

// The AI SDK hands errors of a stream to a callback, and ends it as if nothing were.
let failure = null;
function thrown({ error }) {
  failure = error;
}

async function joined(stream) {
  let text = "";
  for await (const piece of stream) text += piece;
  if (failure) throw failure;
  return text;
}

const results = {};
for (const [name, call] of Object.entries(calls)) {
  failure = null;
  results[name] = await call().catch((error) => ({ error: String(error) }));
}
window.results = results;
